%% A permuting copy, at times turned round along one dimension and scaled; order: places of the output's dimensions among the input's.
%- macro apart(number, places, kind)
% set ns = namespace(passed="")
% for place in places
% set over = number ~ " / (" ~ ns.passed ~ ")" if " * " in ns.passed else number ~ " / " ~ ns.passed if ns.passed else number
${const}$kind ${names[place]} = $over${"" if loop.last else " % " ~ dims[place]};
% set ns.passed = ns.passed ~ " * " ~ dims[place] if ns.passed else dims[place]
% endfor
%- endmacro
%- macro scaled(value)
${factor ~ ("" if double_literals else "f") ~ " * " ~ value if factor else value}
%- endmacro
% set rough = strided_copy or slow_order or swapped_axes
% set read = x ~ "[" ~ source ~ "]"
% if turning and not rough
% set loop_ = names_of.loop
@block $side, $thin
@grid cdiv(${dims[fast_in]}, $side) | cdiv(${dims[fast_out]}, $side) | ${others_deep}
__shared__ $type $tile[$side][$side${"" if bank_conflicts else " + 1"}];
% if others | length == 1
${const}int ${names[others[0]]} = blockIdx.z;
% else
${const}int $z = blockIdx.z;
${apart(z, others, "int")}
% endif
% for half in (0, 1)
@for $loop_ = threadIdx.y .. $side by $thin
${const}int ${names[fast_in]} = blockIdx.x * $side + ${loop_ if half else "threadIdx.x"};
${const}int ${names[fast_out]} = blockIdx.y * $side + ${"threadIdx.x" if half else loop_};
@if ${names[fast_in]} < ${dims[fast_in]} && ${names[fast_out]} < ${dims[fast_out]}
% if half
$y[$to] = ${scaled(tile ~ "[threadIdx.x][" ~ loop_ ~ "]")};
% else
$tile[$loop_][threadIdx.x] = $read;
% endif
@end
@end
% if not half
__syncthreads();
% endif
% endfor
% elif swapped_axes
@block 8, 8, 4
@grid cdiv(${dims[order[0]]}, block_x) | cdiv(${dims[order[1]]}, block_y) | cdiv(${dims[order[2]]}, block_z)
% for axis in "xyz"
${const}int ${names[order[loop.index0]]} = ${gid(axis)};
% endfor
@guard ${names[order[0]]} < ${dims[order[0]]}, ${names[order[1]]} < ${dims[order[1]]}, ${names[order[2]]} < ${dims[order[2]]}
% for place in order[3:]
@for ${names[place]} = 0 .. ${dims[place]}
% endfor
$y[$to] = ${scaled(read)};
% else
% set kind = "long long" if wide_index else "int"
% set total = dims | join(" * ")
@block 256
@grid cdiv($total, block)
${const}$kind $i = ${"(long long)" if wide_index and not turned else ""}${gid()};
@guard $i < $total
${apart(i, order if slow_order else order[::-1], kind)}
$y[$to] = ${scaled(read)};
% endif
