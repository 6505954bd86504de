%% A histogram, at times weighted, with counts of the block's own or without.
% set bins = block if named else count
@block $size
@grid ${"cdiv(" ~ n ~ ", block)" if full_grid else "min(cdiv(" ~ n ~ ", block), 132)"}
% for line in top
@top $line
% endfor
% if not atomic_bins
__shared__ $type $tile[${count * 4 if oversized_shared else bins}];
for (int $tid = threadIdx.x; $tid < $bins; $tid += blockDim.x) $tile[$tid] = 0;
__syncthreads();
% if extra_barriers
__syncthreads();
% endif
% endif
% if full_grid
${const}int $i = ${gid()};
if ($i < $n) {
% else
@for $i = ${gid()} .. $n by blockDim.x * gridDim.x
% endif
${const}int $tmp = ${bin_text.format(x ~ "[" ~ i ~ "]")};
% set added = "atomicAdd(&" ~ (out if atomic_bins else tile) ~ "[" ~ tmp ~ "], " ~ (weights ~ "[" ~ i ~ "]" if weights else "1u" if type == "unsigned int" else "1") ~ ");"
% if checked
@if $tmp >= 0 && $tmp < $bins
$added
@end
% else
$added
% endif
@end
% if not atomic_bins
__syncthreads();
for (int $tid = threadIdx.x; $tid < $bins; $tid += blockDim.x) atomicAdd(&$out[$tid], $tile[$tid]);
% endif
