%% Sums of rows of a table that lists of indices name.
% set place = y ~ "[" ~ row ~ " * " ~ dim ~ " + " ~ col ~ "]"
% set sum = place if global_accumulator else acc
% if thread_per_row
@block 64
@grid cdiv($bags, block)
${const}int $row = ${gid()};
@guard $row < $bags
@for $col = 0 .. $dim
% else
@block ${32 * warps}
@grid $bags
${const}int $row = blockIdx.x;
@for $col = threadIdx.x .. $dim by blockDim.x
% endif
${"" if global_accumulator else "float "}$sum = ${literal(0)};
@for $loop = 0 .. $length
$sum += ${weights ~ "[" ~ row ~ " * " ~ length ~ " + " ~ loop ~ "] * " if weights else ""}$table[$ids[$row * $length + $loop] * $dim + $col];
@end
% if not global_accumulator
$place = $sum;
% endif
