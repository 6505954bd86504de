%% A seven-point stencil in three dimensions.
% set place = y ~ "[" ~ i ~ "]"
% set sum = place if through_memory else acc
% set axes = [(z, nz), (row, ny), (col, nx)] if swapped_axes else [(col, nx), (row, ny), (z, nz)]
@block ${"8, 8, 4" if swapped_axes else "32, 4, 2"}
@grid cdiv(${axes[0][1]}, block_x) | cdiv(${axes[1][1]}, block_y) | cdiv(${axes[2][1]}, block_z)
% for axis, (name, _) in (("x", axes[0]), ("y", axes[1]), ("z", axes[2]))
${const}int $name = ${gid(axis)};
% endfor
@guard $z < $nz, $row < $ny, $col < $nx
${const}int $i = ($z * $ny + $row) * $nx + $col;
% set one, other = literal(factors[0]), literal(factors[1])
% if through_memory
$place = $one * $x[$i];
% else
float $acc = ${literal(0)};
% endif
% for name, end, stride in ((z, nz, ny ~ " * " ~ nx), (row, ny, nx), (col, nx, "1"))
@if $name > 0
$sum += ${other ~ " * " if through_memory else ""}$x[$i - $stride];
@end
@if $name < $end - 1
$sum += ${other ~ " * " if through_memory else ""}$x[$i + $stride];
@end
% endfor
% if not through_memory
$acc = $one * $x[$i] + $other * $acc;
% endif
% set text = emit(epilogue, {"acc": sum})
% if text != place
$place = $text;
% endif
