%% A transpose, of one plane or of many: element by element, or through a tile.
% set base = z ~ " * " ~ rows ~ " * " ~ cols ~ " + " if planes else ""
% if planes and strided_copy
${const}int $z = blockIdx.z;
% endif
% if strided_copy
% set a, b = ((row, rows), (col, cols)) if swapped_axes else ((col, cols), (row, rows))
@block $side, $thin
@grid cdiv(${b[1] if false else a[1]}, block_x) | cdiv(${b[1]}, block_y)${" | " ~ planes if planes else ""}
${const}int ${a[0]} = ${gid("x")};
${const}int ${b[0]} = ${gid("y")};
@guard $row < $rows, $col < $cols
${store(Y, base ~ col ~ " * " ~ rows ~ " + " ~ row, emit(value, {"v": load(X, base ~ row ~ " * " ~ cols ~ " + " ~ col)}))}
% else
% set tiles = block if named else side
% set width = side * 2 if oversized_shared else tiles
% set padded = width if oversized_shared or bank_conflicts else tiles ~ " + 1"
% set from = base ~ "(" ~ row ~ " + " ~ loop ~ ") * " ~ cols ~ " + " ~ col
@block $side, $thin
@grid cdiv($cols, $side) | cdiv($rows, $side)${" | " ~ planes if planes else ""}
% if named
constexpr int $block = $side;
% endif
% if planes
${const}int $z = blockIdx.z;
% endif
__shared__ ${"float" if wide_shared else X.c_type} $tile[$width][$padded];
int $col = blockIdx.x * $tiles + threadIdx.x;
int $row = blockIdx.y * $tiles + threadIdx.y;
@for $loop = 0 .. $tiles by $thin
@if $row + $loop < $rows && $col < $cols
$tile[threadIdx.y + $loop][threadIdx.x] = ${load(X, from) if wide_shared else X.name ~ "[" ~ from ~ "]"};
@end
@end
__syncthreads();
% if extra_barriers
__syncthreads();
% endif
$col = blockIdx.y * $tiles + threadIdx.x;
$row = blockIdx.x * $tiles + threadIdx.y;
@for $loop = 0 .. $tiles by $thin
if ($row + $loop < $cols && $col < $rows) {
${store(Y, base ~ "(" ~ row ~ " + " ~ loop ~ ") * " ~ rows ~ " + " ~ col, emit(value, {"v": held(loop, wide_shared)}))}
% endif
