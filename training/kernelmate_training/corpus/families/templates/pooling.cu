%% What is joined over the middle of three dimensions.
% set place = y ~ "[" ~ at(row, features, col) ~ "]"
% set sum = place if global_accumulator else acc
% if thread_per_row
@block 64
@grid cdiv($groups, block)
${const}int $row = ${gid()};
@guard $row < $groups
@for $col = 0 .. $features
% elif swapped_axes or early
@block 32, 8
@grid cdiv(${groups if swapped_axes else features}, block_x) | cdiv(${features if swapped_axes else groups}, block_y)
${const}int $row = ${gid("x" if swapped_axes else "y")};
${const}int $col = ${gid("y" if swapped_axes else "x")};
@guard $row < $groups, $col < $features
% else
@block 128
@grid $groups
${const}int $row = blockIdx.x;
@for $col = threadIdx.x .. $features by blockDim.x
% endif
${"" if global_accumulator else "float "}$sum = ${neutral(op, doubles=double_literals)};
@for $loop = 0 .. $length
${grown(op, sum, emit(value, {"v": x ~ "[(" ~ row ~ " * " ~ length ~ " + " ~ loop ~ ") * " ~ features ~ " + " ~ col ~ "]"}))}
@end
% if scaled
$place = $sum / $length;
% elif not global_accumulator
$place = $sum;
% endif
