// Convolution causale dilatée : y[c][t] = somme_k w[c][k] * x[c][t - k * pas]
// Le passé avant t = 0 vaut zéro.

// /// kernelmate
// sizes = [{ canaux = 8, temps = 2048, noyau = 12 }, { canaux = 5, temps = 131, noyau = 3 }, { canaux = 1, temps = 1, noyau = 1 }]
// grid = ["cdiv(temps, block)", "canaux"]
// block = 128
// reference = "reference.py:causal_conv"
// [args]
// x = "in float32[canaux, temps] ~ normal"
// w = "in float32[canaux, noyau] ~ normal"
// y = "out float32[canaux, temps]"
// temps = "int32"
// noyau = "int32"
// pas = "int32 = 2"
// ///
__global__ void conv_causale(float *x, float *w, float *y, int temps, int noyau, int pas)
{
    int t = threadIdx.x + blockDim.x * blockIdx.x;
    int c = blockIdx.y;
    if (t < temps)
    {
        y[c * temps + t] = 0;
        for (int k = 0; k < noyau; k++)
            if (t - k * pas >= 0)
                y[c * temps + t] += w[c * noyau + k] * x[c * temps + t - k * pas];
    }
}
