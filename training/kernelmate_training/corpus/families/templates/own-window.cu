%% Statistics over a few elements that each thread keeps to itself.
% set pragma = "#pragma unroll 1" if local_array else "#pragma unroll"
@block $size
@grid cdiv($n, block)
% if launch_bounds
@head __launch_bounds__($size, ${2048 // size})
% endif
${const}int $i = ${gid()};
@guard $i < $n
float $tile[$count];
$pragma
for (int $loop = 0; $loop < $count; ++$loop) $tile[$loop] = $x[${i ~ " * " ~ count ~ " + " ~ loop if across else loop ~ " * " ~ n ~ " + " ~ i}];
float $acc = 0.0f;
$pragma
for (int $loop = 0; $loop < $count; ++$loop) {
$pragma
for (int $loop2 = ${"0" if form == "rank" else loop ~ " + 1"}; $loop2 < $count; ++$loop2) {
% if form == "spread"
$acc += fabsf($tile[$loop] - $tile[$loop2]);
% elif form == "product"
$acc += $tile[$loop] * $tile[$loop2];
% else
$acc += ($tile[$loop] > $tile[$loop2] ? $tile[$loop] : 0.0f);
% endif
}
}
$y[$i] = $acc;
