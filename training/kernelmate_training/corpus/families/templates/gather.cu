%% Copies whose places are computed: gathers, reversals, shifts, (de)interleaving.
% if thread_per_row
@block 128
@grid cdiv($rows, block)
${const}int $row = ${gid()};
@guard $row < $rows
@for $col = 0 .. $cols
% else
% set a, b = ((row, rows), (col, cols)) if swapped_axes else ((col, cols), (row, rows))
@block ${sides[0]}, ${sides[1]}
@grid cdiv(${a[1]}, block_x) | cdiv(${b[1]}, block_y)
${const}int ${a[0]} = ${gid("x")};
${const}int ${b[0]} = ${gid("y")};
@guard $row < $rows, $col < $cols
% endif
${store(Y, at(row, cols, col), emit(value, reads))}
