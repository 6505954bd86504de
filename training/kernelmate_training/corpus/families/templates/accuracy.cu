%% A statistic of each row, or of each column, by one thread.
% set value = x ~ "[" ~ at(row, cols, col) ~ "]"
% set weight = w ~ "[" ~ other ~ "]" if w else ""
@block ${32 if tiny_block else size}
@grid cdiv($bound, block)
${const}int $mine = ${gid()};
@guard $mine < $bound
% if form == "half"
% if naive_sum
__half $acc = __float2half(0.0f);
@for $other = 0 .. $last
% if weight
$acc = __hfma($value, $weight, $acc);
% else
$acc = __hadd($acc, $value);
% endif
% else
float $acc = 0.0f;
@for $other = 0 .. $last
$acc += __half2float($value)${" * __half2float(" ~ weight ~ ")" if weight else ""};
% endif
@end
% elif form == "variance"
float $acc2 = 0.0f;
float $acc = 0.0f;
@for $other = 0 .. $last
${const}float $tmp = $value;
$acc2 += $tmp;
% if cancelling
$acc += $tmp * $tmp;
% endif
@end
$acc2 /= $last;
% if cancelling
$acc = $acc / $last - $acc2 * $acc2;
% else
@for $other = 0 .. $last
${const}float $tmp = $value - $acc2;
$acc += $tmp * $tmp;
@end
$acc /= $last;
% endif
% elif plain_sum
float $acc = 0.0f;
@for $other = 0 .. $last
$acc += $value;
@end
% else
float $acc = 0.0f;
float $acc2 = 0.0f;
@for $other = 0 .. $last
${const}float $tmp = $value - $acc2;
${const}float $stride = $acc + $tmp;
$acc2 = ($stride - $acc) - $tmp;
$acc = $stride;
@end
% endif
$y[$mine] = ${"__float2half(" ~ acc ~ ")" if form == "half" and not naive_sum else acc};
