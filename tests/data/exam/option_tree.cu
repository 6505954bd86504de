// American put by a binomial tree of 16 steps; a thread prices one option.
#define STEPS 16

// /// kernelmate
// sizes = [{ options = 512 }, { options = 99 }, { options = 1 }]
// grid = "cdiv(options, block)"
// block = 64
// reference = "reference.py:option_tree"
// tolerance = { rtol = 1e-3, atol = 1e-3 }
// [args]
// spot = "in float32[options] ~ uniform(50, 150)"
// strike = "in float32[options] ~ uniform(80, 120)"
// price = "out float32[options]"
// options = "int32"
// up = "float32 = 1.05"
// p = "float32 = 0.52"
// discount = "float32 = 0.998"
// ///
__global__ void price_put(const float *spot, const float *strike, float *price, int options, float up, float p, float discount)
{
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id < options)
    {
        float value[STEPS + 1];
        float k = strike[id], inverse = 1.0f / up, up2 = up * up;
        float lowest = spot[id];
        for (int s = 0; s < STEPS; s++) lowest *= inverse;
        float node = lowest;
#pragma unroll
        for (int leaf = 0; leaf <= STEPS; leaf++)
        {
            value[leaf] = fmaxf(k - node, 0.0f);
            node *= up2;
        }
#pragma unroll
        for (int level = STEPS - 1; level >= 0; level--)
        {
            lowest *= up;
            node = lowest;
#pragma unroll
            for (int leaf = 0; leaf <= level; leaf++)
            {
                value[leaf] = fmaxf(discount * (p * value[leaf + 1] + (1.0f - p) * value[leaf]), k - node);
                node *= up2;
            }
        }
        price[id] = value[0];
    }
}
