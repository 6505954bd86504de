%% Sums of products of few rows with weights whose rows belong to outputs: by a thread, or by a warp.
% set alone = thread_per_row or global_accumulator
% set type = base if global_accumulator else real
% set place = y ~ "[" ~ row ~ " * " ~ outputs ~ " + " ~ col ~ "]"
% set sum = place if global_accumulator else acc
% set stored = tail.format(s=("(float)" if type == "double" else "") ~ sum ~ (" + " ~ bias ~ "[" ~ col ~ "]" if bias else ""))
@block ${"128" if alone else "32, " ~ warps}
@grid cdiv($outputs, ${"block" if alone else "block_y"}) | $rows
${const}int $row = blockIdx.y;
% if alone
${const}int $col = ${gid()};
@guard $col < $outputs
% else
${const}int $col = blockIdx.x * blockDim.y + threadIdx.y;
if ($col >= $outputs) return;
% endif
% if global_accumulator
$sum = 0;
% else
$type $sum = 0${"" if type == "int" else ".0" if type == "double" else ".0f"};
% endif
@for $loop = ${"0" if alone else "threadIdx.x"} .. $inputs${"" if alone else " by 32"}
$sum += ${"(int)" if type == "int" else "(double)" if type == "double" else ""}$x[$row * $inputs + $loop] * $w[$col * $inputs + $loop];
@end
% if not alone
for (int $half = 16; $half > 0; $half >>= 1) $sum += __shfl_down_sync(0xffffffffu, $sum, $half);
@if threadIdx.x == 0
$place = $stored;
@end
% elif stored != place
$place = $stored;
% endif
