%% Products of rows of bytes with a vector of bytes.
@const always
% if thread_per_row
@block 128
@grid cdiv($rows, block)
${const}int $row = ${gid()};
@guard $row < $rows
% else
@block 32, $warps
@grid cdiv($rows, block_y)
${const}int $row = blockIdx.x * blockDim.y + threadIdx.y;
${const}int $lane = threadIdx.x;
if ($row >= $rows) return;
% endif
% set start, by = ("0", "") if thread_per_row else (lane, " by 32")
int $acc = 0;
% if not byte_dot
if ($aligned) {
const int* ${a}_4 = reinterpret_cast<const int*>($a + $row * $cols);
const int* ${x}_4 = reinterpret_cast<const int*>($x);
@for $loop = $start .. $cols / 4$by
$acc = __dp4a(${a}_4[$loop], ${x}_4[$loop], $acc);
@end
}
else {
% endif
@for $loop = $start .. $cols$by
$acc += $a[$row * $cols + $loop] * $x[$loop];
@end
% if not byte_dot
}
% endif
% set value = acc ~ " >> " ~ shift if shift else acc
% if thread_per_row
$y[$row] = $value;
% else
% if integer_tree
for (int $half = 16; $half > 0; $half /= 2) $acc += __shfl_xor_sync(0xffffffffu, $acc, $half);
% else
$acc = __reduce_add_sync(0xffffffffu, $acc);
% endif
@if $lane == 0
$y[$row] = $value;
@end
% endif
