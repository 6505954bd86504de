%% One number, or one per block, of a whole array.
%- macro added(value)
% if partials
$out[blockIdx.x] = $value;
% else
atomic${"Add" if op == "sum" else op.capitalize()}(&$out[0], $value);
% endif
%- endmacro
% set threads = 1024 if huge_block and not partials else size
% set reads = names(i)
@block $threads
% if atomic_each and not partials
@grid cdiv($n, $threads)
${const}int $i = ${gid()};
@guard $i < $n
${added(emit(element, reads))}
% else
% if partials or full_grid
@grid cdiv($n, $threads)
% else
@grid min(cdiv($n, block), 132)
% endif
% set all = team(threads, tid, real)
__shared__ $real $tile[${all.elements}];
% if second_buffer
__shared__ $real $tile2[${all.elements}];
% endif
${const}int $tid = threadIdx.x;
$real $acc = ${neutral(op)};
% if partials or full_grid
${const}int $i = ${gid()};
if ($i < $n) {
% elif chunked
${const}int $stride = ($n + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x);
${const}int $row = (${gid()}) * $stride;
${const}int $col = min($row + $stride, $n);
@for $i = $row .. $col
% else
@for $i = ${gid()} .. $n by blockDim.x * gridDim.x
% endif
${grown(op, acc, emit(element, reads))}
@end
% if second_buffer
$tile2[$tid % ${all.elements}] = $acc;
__syncthreads();
% endif
${all.reduced(op, acc, tile)}
@if $tid == 0
${added(acc)}
@end
% endif
