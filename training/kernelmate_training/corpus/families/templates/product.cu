%% A product of a row and a column for each output, with an epilogue: directly, or through tiles of both operands.
%- macro at_a(row, k)
${z_of(m, inner) ~ (k ~ " * " ~ m ~ " + " ~ row if turned_a else row ~ " * " ~ inner ~ " + " ~ k)}
%- endmacro
%- macro at_b(k, col)
${z_of(n, inner) ~ (col ~ " * " ~ inner ~ " + " ~ k if turned_b else k ~ " * " ~ n ~ " + " ~ col)}
%- endmacro
%- macro step(sum, p, q)
% if simple(p, q)
${sum ~ " = " ~ sum ~ " + " if "[" in sum else sum ~ " += "}${emit(term, {"p": p, "q": q})};
% else
${const}$real p_v = $p;
${const}$real q_v = $q;
${sum ~ " = " ~ sum ~ " + " if "[" in sum else sum ~ " += "}${emit(term, {"p": "p_v", "q": "q_v"})};
% endif
%- endmacro
% set to = z_of(m, n) ~ row ~ " * " ~ n ~ " + " ~ col
% set place = out.name ~ "[" ~ to ~ "]"
%- macro end(sum)
% set text = emit(epilogue, extras(sum, row, col, to))
% if sum != place or text != sum
${store(out, to, text)}
% endif
%- endmacro
% set deep = " | " ~ batch if batch else ""
% if untiled
% if batch
${const}int $z = blockIdx.z;
% endif
% if thread_per_row
@block 64
@grid cdiv($m, block)${" | 1" ~ deep if batch else ""}
${const}int $row = ${gid()};
@guard $row < $m
@for $col = 0 .. $n
% else
% set a, b = ((row, m), (col, n)) if swapped_axes else ((col, n), (row, m))
@block ${sides[0]}, ${sides[1]}
@grid cdiv(${a[1]}, block_x) | cdiv(${b[1]}, block_y)$deep
${const}int ${a[0]} = ${gid("x")};
${const}int ${b[0]} = ${gid("y")};
@guard $row < $m, $col < $n
% endif
% set sum = place if global_accumulator and may_keep else acc
${"" if sum == place else real ~ " "}$sum = ${literal(0)};
@for $loop = 0 .. $inner
${step(sum, load(A, at_a(row, loop) | trim), load(B, at_b(loop, col) | trim))}
@end
${end(sum)}
% else
% set tiles = block if named else side
% set padded = tiles ~ " + 1" if (turned_a or turned_b) and not bank_conflicts else tiles
% set zero = zero_of(real)
@block $side, $side
@grid cdiv($n, $side) | cdiv($m, $side)$deep
% if named
constexpr int $block = $side;
% endif
% if batch
${const}int $z = blockIdx.z;
% endif
% for name in (tile, tile2)
__shared__ $base $name[${side * 2 if oversized_shared else tiles}][${side * 2 if oversized_shared else padded}];
% endfor
${const}int $row = blockIdx.y * $tiles + threadIdx.y;
${const}int $col = blockIdx.x * $tiles + threadIdx.x;
$real $acc = ${literal(0)};
for (int $loop2 = 0; $loop2 < $inner; $loop2 += $tiles) {
% if turned_a
% set r, k = "(blockIdx.y * " ~ tiles ~ " + threadIdx.x)", "(" ~ loop2 ~ " + threadIdx.y)"
$tile[threadIdx.x][threadIdx.y] = $r < $m && $k < $inner ? ${load(A, at_a(r, k) | trim)} : $zero;
% else
% set k = "(" ~ loop2 ~ " + threadIdx.x)" if turned else loop2 ~ " + threadIdx.x"
$tile[threadIdx.y][threadIdx.x] = $row < $m && $k < $inner ? ${load(A, at_a(row, k) | trim)} : $zero;
% endif
% if turned_b
% set c, k = "(blockIdx.x * " ~ tiles ~ " + threadIdx.y)", "(" ~ loop2 ~ " + threadIdx.x)"
$tile2[threadIdx.x][threadIdx.y] = $c < $n && $k < $inner ? ${load(B, at_b(k, c) | trim)} : $zero;
% else
% set k = "(" ~ loop2 ~ " + threadIdx.y)"
$tile2[threadIdx.y][threadIdx.x] = $k < $inner && $col < $n ? ${load(B, at_b(k, col) | trim)} : $zero;
% endif
__syncthreads();
% if extra_barriers
__syncthreads();
% endif
@for $loop = 0 .. $tiles
${step(acc, tile ~ "[threadIdx.y][" ~ loop ~ "]", tile2 ~ "[" ~ loop ~ "][threadIdx.x]")}
% if extra_barriers
__syncthreads();
% endif
@end
__syncthreads();
}
if ($row < $m && $col < $n) {
${end(acc)}
% endif
