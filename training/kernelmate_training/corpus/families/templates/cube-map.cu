%% A map of three dimensions, at times stored in another order of them; out and ends: from the slowest dimension of the output on.
% if slow_order or flat_index
% set total = dims | join(" * ")
% set a, b, c = (0, 1, 2) if slow_order else (2, 1, 0)
@block 256
@grid cdiv($total, block)
${const}int $i = ${gid()};
@guard $i < $total
${const}int ${out[a]} = $i % ${ends[a]};
${const}int ${out[b]} = $i / ${ends[a]} % ${ends[b]};
${const}int ${out[c]} = $i / (${ends[a]} * ${ends[b]});
% elif thread_per_row
@block 64, 2
@grid cdiv(${ends[1]}, block_x) | cdiv(${ends[0]}, block_y)
${const}int ${out[1]} = ${gid("x")};
${const}int ${out[0]} = ${gid("y")};
@guard ${out[0]} < ${ends[0]}, ${out[1]} < ${ends[1]}
@for ${out[2]} = 0 .. ${ends[2]}
% else
% set a, b, c = (0, 1, 2) if swapped_axes else (2, 1, 0)
@block ${"8, 8, 4" if swapped_axes else "32, 4, 2"}
@grid cdiv(${ends[a]}, block_x) | cdiv(${ends[b]}, block_y) | cdiv(${ends[c]}, block_z)
${const}int ${out[a]} = ${gid("x")};
${const}int ${out[b]} = ${gid("y")};
${const}int ${out[c]} = ${gid("z")};
@guard $z < ${dims[0]}, $row < ${dims[1]}, $col < ${dims[2]}
% endif
$y[(${out[0]} * ${ends[1]} + ${out[1]}) * ${ends[2]} + ${out[2]}] = ${emit(value, reads)};
