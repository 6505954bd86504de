%% A count per block of what holds.
% set holds = i ~ " < " ~ n ~ " && " ~ condition.format(x ~ "[" ~ i ~ "]")
@block $size
@grid cdiv($n, $size)
__shared__ int $tile[${1024 if oversized_shared else size // 32}];
${const}int $i = ${gid()};
% if vote_by_shuffle
int $tmp = ($holds) ? 1 : 0;
for (int $half = 16; $half > 0; $half /= 2) $tmp += __shfl_xor_sync(0xffffffffu, $tmp, $half);
% else
${const}int $tmp = __popc(__ballot_sync(0xffffffffu, $holds));
% endif
if (threadIdx.x % 32 == 0) $tile[threadIdx.x / 32] = $tmp;
__syncthreads();
% if extra_barriers
__syncthreads();
% endif
if (threadIdx.x == 0) {
int $acc = 0;
for (int $warp = 0; $warp < ${size // 32}; ++$warp) $acc += $tile[$warp];
$y[blockIdx.x] = $acc;
