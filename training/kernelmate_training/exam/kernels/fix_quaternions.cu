// normalises quaternions (x y z w); a zero one becomes the identity

// /// kernelmate
// sizes = [{ count = 4096 }, { count = 99 }, { count = 1 }]
// grid = "cdiv(count, 64)"
// block = 64
// reference = "reference.py:quaternions"
// [args]
// q = "inout float32[count, 4] ~ normal"
// count = "int32"
// ///
__global__ void normalise_quaternions(float4 *q, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= count) return;
	float4 v = q[i];
	float norm = sqrtf(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w)
	if (norm > 0.0f)
		q[i] = make_float4(v.x / norm, v.y / norm, v.z / norm, v.w / norm);
	else
		q[i] = make_float4(0.0f, 0.0f, 0.0f, 1.0f);
}
