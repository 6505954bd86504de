// Scatter matrix of centred samples: S[i][j] = sum over samples of X[s][i] * X[s][j]

// /// kernelmate
// sizes = [{ samples = 80, dim = 64 }, { samples = 33, dim = 17 }, { samples = 1, dim = 1 }]
// grid = ["cdiv(dim, 16)", "cdiv(dim, 16)"]
// block = [16, 16]
// reference = "X.T @ X"
// [args]
// X = "in float32[samples, dim] ~ normal"
// S = "out float32[dim, dim]"
// samples = "int32"
// dim = "int32"
// ///
extern "C" __global__ void scatter_matrix(float *X, float *S, int samples, int dim)
{
	int i = threadIdx.x + blockIdx.x * blockDim.x;
	int j = threadIdx.y + blockIdx.y * blockDim.y;
	int s;

	if (i < dim && j < dim) {
		S[i * dim + j] = 0;
		for (s = 0; s < samples; s++)
			S[i * dim + j] += X[s * dim + i] * X[s * dim + j];
	}
}
