%% A whole number for each record of bytes: by a thread, or by a warp with a byte per lane.
% set alone = thread_per_row or global_accumulator
% set place = y ~ "[" ~ row ~ "]"
% set sum = place if global_accumulator else acc
% set result = "(float)" ~ sum ~ " / " ~ length if share else sum
@block ${"128" if alone else "32, " ~ warps}
@grid cdiv($records, ${"block" if alone else "block_y"})
% if alone
${const}int $row = ${gid()};
@guard $row < $records
% else
${const}int $row = blockIdx.x * blockDim.y + threadIdx.y;
if ($row >= $records) return;
% endif
% if global_accumulator
$sum = 0;
% else
unsigned int $sum = 0u;
% endif
@for $loop = ${"0" if alone else "threadIdx.x"} .. $length${"" if alone else " by 32"}
$sum $joins= ${term.format(v="(unsigned int)" ~ x ~ "[" ~ row ~ " * " ~ length ~ " + " ~ loop ~ "]", k="(unsigned int)" ~ loop)};
@end
% if not alone
for (int $half = 16; $half > 0; $half /= 2) $sum $joins= __shfl_xor_sync(0xffffffffu, $sum, $half);
@if threadIdx.x == 0
$place = $result;
@end
% elif not global_accumulator
$place = $result;
% endif
