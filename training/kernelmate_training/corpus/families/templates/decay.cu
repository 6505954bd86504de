%% A first-order filter along rows: by a thread, or by a warp that scans 32 elements at once.
% set place = at(row, cols, col)
% set rate = keep ~ ("" if double_literals else "f")
% set next = emit(value, {"v": x ~ "[" ~ place ~ "]"})
% if serial_scan or global_accumulator
@block 64
@grid cdiv($rows, block)
${const}int $row = ${gid()};
@guard $row < $rows
float $acc = ${literal(0)};
@for $col = 0 .. $cols
% if global_accumulator
$y[$place] = $rate * ($col > 0 ? $y[${at(row, cols, col ~ " - 1")}] : $acc) + $next;
% else
$acc = $rate * $acc + $next;
$y[$place] = $acc;
% endif
% else
@block 32, $warps
@grid cdiv($rows, block_y)
${const}int $row = blockIdx.x * blockDim.y + threadIdx.y;
if ($row >= $rows) return;
float $acc = ${literal(0)};
float $loop2 = $rate;
for (int $half = 0; $half < (int)threadIdx.x; ++$half) $loop2 *= $rate;
for (int $loop = 0; $loop < $cols; $loop += 32) {
${const}int $col = $loop + threadIdx.x;
float $tmp = ${literal(0)};
if ($col < $cols) {
$tmp = $next;
}
float $stride = $rate;
for (int $half = 1; $half < 32; $half *= 2) {
${const}float $acc2 = __shfl_up_sync(0xffffffffu, $tmp, $half);
@if threadIdx.x >= $half
$tmp += $stride * $acc2;
@end
$stride *= $stride;
}
$tmp += $loop2 * $acc;
@if $col < $cols
$y[$place] = $tmp;
@end
$acc = __shfl_sync(0xffffffffu, $tmp, 31);
% endif
