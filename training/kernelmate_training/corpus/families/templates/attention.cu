%% Attention: by a thread for each query, by one for each element of the result, or by a block for each query.
% set last = "min(" ~ row ~ " + 1, " ~ length ~ ")" if causal else length
% set zero = literal(0)
% set place = out ~ "[" ~ row ~ " * " ~ dim ~ " + " ~ col ~ "]"
%- macro scored()
float score = $zero;
@for $loop2 = 0 .. $dim
score += $q[$row * $dim + $loop2] * $k[$loop * $dim + $loop2];
@end
score *= scale;
%- endmacro
%- macro largest()
float top = -1e30f;
@for $loop = 0 .. $last
${scored()}
top = fmaxf(top, score);
@end
%- endmacro
%- macro ended(sum)
% set text = emit(epilogue, extras(sum, row ~ " * " ~ dim ~ " + " ~ col))
% if text != place
$place = $text;
% endif
%- endmacro
% if thread_per_row
@block 64
@grid cdiv($n, block)
${const}int $row = ${gid()};
@guard $row < $n
${largest()}
float denom = $zero;
@for $loop = 0 .. $last
${scored()}
denom += expf(score - top);
@end
@for $col = 0 .. $dim
$place = $zero;
@end
@for $loop = 0 .. $last
${scored()}
${const}float weight = expf(score - top) / denom;
@for $col = 0 .. $dim
$place += weight * $v[$loop * $dim + $col];
@end
@end
% if epilogue.op != "var"
@for $col = 0 .. $dim
${ended(place)}
@end
% endif
% elif recomputes
% set a, b = ((row, n), (col, dim)) if swapped_axes else ((col, dim), (row, n))
@block 16, 8
@grid cdiv(${a[1]}, block_x) | cdiv(${b[1]}, block_y)
${const}int ${a[0]} = ${gid("x")};
${const}int ${b[0]} = ${gid("y")};
@guard $row < $n, $col < $dim
${largest()}
float denom = $zero;
float $acc = $zero;
@for $loop = 0 .. $last
${scored()}
${const}float weight = expf(score - top);
denom += weight;
$acc += weight * $v[$loop * $dim + $col];
@end
$acc /= denom;
${ended(acc)}
% else
% set all = team(size, tid)
@block $size
@grid $n
@shared $length * 4
extern __shared__ float $tile2[];
__shared__ float $tile[${all.elements}];
${const}int $row = blockIdx.x;
${const}int $tid = threadIdx.x;
float top = ${neutral("max")};
@for $loop = $tid .. $last by blockDim.x
${scored()}
$tile2[$loop] = score;
top = fmaxf(top, score);
@end
${all.reduced("max", "top", tile, again=True)}
float denom = $zero;
@for $loop = $tid .. $last by blockDim.x
${const}float weight = expf($tile2[$loop] - top);
$tile2[$loop] = weight;
denom += weight;
@end
${all.reduced("sum", "denom", tile, again=True)}
@for $col = $tid .. $dim by blockDim.x
float $acc = $zero;
@for $loop = 0 .. $last
$acc += $tile2[$loop]${" / denom" if divides else ""} * $v[$loop * $dim + $col];
@end
% if not divides
$acc /= denom;
% endif
${ended(acc)}
@end
% endif
