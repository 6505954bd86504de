%% An order statistic of a few elements that each thread keeps to itself.
% set pragma = "#pragma unroll 1" if local_array else "#pragma unroll"
% set one, other = tile ~ "[" ~ loop2 ~ "]", tile ~ "[" ~ loop2 ~ " + 1]"
@block 128
@grid cdiv($n, block)
${const}int $i = ${gid()};
@guard $i < $n
float $tile[$count];
$pragma
for (int $loop = 0; $loop < $count; ++$loop) $tile[$loop] = $x[${loop ~ " * " ~ n ~ " + " ~ i if strided else i ~ " * " ~ count ~ " + " ~ loop}];
$pragma
for (int $loop = 0; $loop < $count - 1; ++$loop) {
$pragma
for (int $loop2 = 0; $loop2 < $count - 1 - $loop; ++$loop2) {
% if local_array
if ($one > $other) {
float $tmp = $one;
$one = $other;
$other = $tmp;
}
% else
float $tmp = fminf($one, $other);
$other = fmaxf($one, $other);
$one = $tmp;
% endif
}
}
$y[$i] = $tile[$place];
