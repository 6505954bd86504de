%% A table that counts pairs of classes.
% set bins = sides[0] * sides[1]
% set cell = tile ~ "[" ~ tid ~ "]" if turned else tile ~ "[" ~ tid ~ " / " ~ sides[1] ~ "][" ~ tid ~ " % " ~ sides[1] ~ "]"
% if early
@const always
% else
@const restrict
% endif
@block $size
@grid ${"cdiv(" ~ n ~ ", block)" if full_grid else "min(cdiv(" ~ n ~ ", block), 264)"}
% if not atomic_bins
__shared__ $type $tile${"[" ~ bins ~ "]" if turned else "[" ~ sides[0] ~ "][" ~ sides[1] ~ "]"};
for (int $tid = threadIdx.x; $tid < $bins; $tid += blockDim.x) $cell = 0;
__syncthreads();
% endif
% if full_grid
${const}int $i = ${gid()};
if ($i < $n) {
% else
@for $i = ${gid()} .. $n by blockDim.x * gridDim.x
% endif
% set one = "1u" if type == "unsigned int" else "1.0f" if type == "float" else "1"
% if atomic_bins or turned
atomicAdd(&${out if atomic_bins else tile}[$a[$i] * ${sides[1]} + $b[$i]], $one);
% else
atomicAdd(&$tile[$a[$i]][$b[$i]], $one);
% endif
@end
% if not atomic_bins
__syncthreads();
for (int $tid = threadIdx.x; $tid < $bins; $tid += blockDim.x) atomicAdd(&$out[$tid], $cell);
% endif
