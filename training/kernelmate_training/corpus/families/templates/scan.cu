%% A running sum or extreme along rows: by a thread, by a block between two buffers, or by a warp.
% set place = at(row, cols, col)
% set idle = neutral(op)
%- macro element()
${emit(value, {"v": x ~ "[" ~ place ~ "]"})}
%- endmacro
% if serial_scan
@block 64
@grid cdiv($rows, block)
${const}int $row = ${gid()};
@guard $row < $rows
float $acc = $idle;
@for $col = 0 .. $cols
% if exclusive
$y[$place] = $acc;
${grown(op, acc, element() | trim)}
% else
${grown(op, acc, element() | trim)}
$y[$place] = $acc;
% endif
% elif ping_pong
% set threads = 32 * warps
@block $threads
@grid $rows
__shared__ float $tile[$threads];
__shared__ float $tile2[$threads];
${const}int $row = blockIdx.x;
${const}int $tid = threadIdx.x;
float $acc = $idle;
for (int $loop = 0; $loop < $cols; $loop += $threads) {
${const}int $col = $loop + $tid;
$tile[$tid] = $idle;
if ($col < $cols) {
$tile[$tid] = ${element() | trim};
}
__syncthreads();
for (int $half = 1; $half < $threads; $half *= 2) {
$tile2[$tid] = $tid >= $half ? ${joined(op, tile ~ "[" ~ tid ~ " - " ~ half ~ "]", tile ~ "[" ~ tid ~ "]")} : $tile[$tid];
__syncthreads();
$tile[$tid] = $tile2[$tid];
__syncthreads();
}
@if $col < $cols
$y[$place] = ${joined(op, acc, "(" ~ tid ~ " > 0 ? " ~ tile ~ "[" ~ tid ~ " - 1] : " ~ idle ~ ")" if exclusive else tile ~ "[" ~ tid ~ "]")};
@end
$acc = ${joined(op, acc, tile ~ "[" ~ (threads - 1) ~ "]")};
__syncthreads();
% else
@block 32, $warps
@grid cdiv($rows, block_y)
${const}int $lane = threadIdx.x;
${const}int $row = blockIdx.x * blockDim.y + threadIdx.y;
if ($row >= $rows) return;
float $acc = $idle;
for (int $loop = 0; $loop < $cols; $loop += 32) {
${const}int $col = $loop + $lane;
float $tmp = $idle;
if ($col < $cols) {
$tmp = ${element() | trim};
}
for (int $half = 1; $half < 32; $half *= 2) {
${const}float $acc2 = __shfl_up_sync(0xffffffffu, $tmp, $half);
@if $lane >= $half
${grown(op, tmp, acc2)}
@end
}
% if exclusive
float $acc2 = __shfl_up_sync(0xffffffffu, $tmp, 1);
if ($lane == 0) $acc2 = $idle;
% endif
@if $col < $cols
$y[$place] = ${joined(op, acc, acc2 if exclusive else tmp)};
@end
$acc = ${joined(op, acc, "__shfl_sync(0xffffffffu, " ~ tmp ~ ", 31)")};
% endif
