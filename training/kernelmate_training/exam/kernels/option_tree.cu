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
        float s = spot[id];
        for (int k = 0; k < STEPS; k++)
            s = s / up;
        #pragma unroll 1
        for (int leaf = 0; leaf <= STEPS; leaf++)
        {
            value[leaf] = fmaxf(strike[id] - s, 0.0f);
            s = s * up * up;
        }
        #pragma unroll 1
        for (int level = STEPS - 1; level >= 0; level--)
        {
            float node = spot[id];
            for (int k = 0; k < level; k++)
                node = node / up;
            #pragma unroll 1
            for (int leaf = 0; leaf <= level; leaf++)
            {
                float hold = discount * (p * value[leaf + 1] + (1.0f - p) * value[leaf]);
                value[leaf] = fmaxf(hold, strike[id] - node);
                node = node * up * up;
            }
        }
        price[id] = value[0];
    }
}
