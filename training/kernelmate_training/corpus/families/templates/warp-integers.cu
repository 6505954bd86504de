%% Integers counted or added by what warps have for it in hardware.
@const restrict
@block $size
@grid ${"cdiv(" ~ n ~ ", block)" if full_grid else "min(cdiv(" ~ n ~ ", block), 264)"}
% if not atomic_each
__shared__ int $tile;
if (threadIdx.x == 0) $tile = 0;
__syncthreads();
% endif
${const}int $tid = threadIdx.x;
int $acc = 0;
@for $i = ${gid()} .. $n by blockDim.x * gridDim.x
% if limit
$acc += $x[$i] > $limit ? 1 : 0;
% else
${const}int $tmp = $x[$i];
$acc += $tmp * $tmp;
% endif
@end
% if integer_tree
for (int $half = 16; $half > 0; $half /= 2) $acc += __shfl_xor_sync(0xffffffffu, $acc, $half);
% else
$acc = __reduce_add_sync(0xffffffffu, $acc);
% endif
@if $tid % 32 == 0
atomicAdd(&${out ~ "[0]" if atomic_each else tile}, $acc);
@end
% if not atomic_each
__syncthreads();
@if $tid == 0
atomicAdd(&$out[0], $tile);
@end
% endif
