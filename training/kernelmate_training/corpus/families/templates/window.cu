%% A stencil on a plane: a weighted, mean or largest window, a cross with two factors, or Sobel's edges.
%- macro near(dy, dx)
${beside(dy, dx, real, literal(0))}
%- endmacro
% set base = z ~ " * " ~ rows ~ " * " ~ cols ~ " + " if planes else ""
% set to = base ~ row ~ " * " ~ cols ~ " + " ~ col
% set place = Y.name ~ "[" ~ to ~ "]"
% set kept = global_accumulator and form in ("weights", "mean") and Y.dtype == "float32"
% set sum = place if kept else acc
% set r, c = half ~ "_r", half ~ "_c"
% set size = 2 * radius + 1
% if planes
${const}int $z = blockIdx.z;
% endif
% if thread_per_row
@block 64
@grid cdiv($rows, block)${" | 1 | " ~ planes if planes else ""}
${const}int $row = ${gid()};
@guard $row < $rows
@for $col = 0 .. $cols
% elif flat_index
@block 256
@grid cdiv($rows * $cols, block)${" | 1 | " ~ planes if planes else ""}
${const}int $i = ${gid()};
@guard $i < $rows * $cols
${const}int $row = $i / $cols;
${const}int $col = $i % $cols;
% else
% set a, b = ((row, rows), (col, cols)) if swapped_axes else ((col, cols), (row, rows))
@block ${sides[0]}, ${sides[1]}
@grid cdiv(${a[1]}, block_x) | cdiv(${b[1]}, block_y)${" | " ~ planes if planes else ""}
${const}int ${a[0]} = ${gid("x")};
${const}int ${b[0]} = ${gid("y")};
@guard $row < $rows, $col < $cols
% endif
% if form == "star"
${const}$real up = ${near(-1, 0)};
${const}$real down = ${near(1, 0)};
${const}$real west = ${near(0, -1)};
${const}$real east = ${near(0, 1)};
${const}$real mid = ${near(0, 0)};
$real $acc = ${literal(factors[0])} * mid + ${literal(factors[1])} * (up + down + west + east);
% elif form == "sobel"
% set two = literal(2)
${const}$real gx = ${near(-1, 1)} - ${near(-1, -1)} + $two * (${near(0, 1)} - ${near(0, -1)}) + ${near(1, 1)} - ${near(1, -1)};
${const}$real gy = ${near(1, -1)} - ${near(-1, -1)} + $two * (${near(1, 0)} - ${near(-1, 0)}) + ${near(1, 1)} - ${near(-1, 1)};
$real $acc = ${"sqrt" if real == "double" else "sqrtf"}(gx * gx + gy * gy + ${literal(0.01)});
% else
${"" if kept else real ~ " "}$sum = ${"-1e30f" if form == "max" else literal(0)};
% if turned
% set dy, dx, weight = loop ~ " - " ~ radius, loop2 ~ " - " ~ radius, loop ~ " * " ~ size ~ " + " ~ loop2
for (int $loop = 0; $loop < $size; ++$loop) {
for (int $loop2 = 0; $loop2 < $size; ++$loop2) {
% else
% set dy, dx, weight = loop, loop2, "(" ~ loop ~ " + " ~ radius ~ ") * " ~ size ~ " + " ~ loop2 ~ " + " ~ radius
for (int $loop = -$radius; $loop <= $radius; ++$loop) {
for (int $loop2 = -$radius; $loop2 <= $radius; ++$loop2) {
% endif
% if border == "clamp"
${const}int $r = min(max($row + $dy, 0), $rows - 1);
${const}int $c = min(max($col + $dx, 0), $cols - 1);
% else
${const}int $r = $row + $dy;
${const}int $c = $col + $dx;
if ($r >= 0 && $r < $rows && $c >= 0 && $c < $cols) {
% endif
% set value = read(X, base ~ r ~ " * " ~ cols ~ " + " ~ c, real)
% if form == "max"
$sum = fmaxf($sum, $value);
% elif W
$sum += ${read(W, (z ~ " * " ~ size * size ~ " + " if planes else "") ~ weight, real)} * $value;
% else
$sum += $value;
% endif
% if border != "clamp"
}
% endif
}
}
% endif
% set text = emit(result, {"acc": sum})
% if not (kept and text == sum)
${store(Y, to, text)}
% endif
