%% A correlation along one dimension, weights in an array.
% set threads = 32 if tiny_block else size
% set place = Y.name ~ "[" ~ i ~ "]"
% set kept = global_accumulator and Y.dtype in ("float32", "float64")
% set sum = place if kept else acc
@block $threads
% if chunked
@grid cdiv($n, 8 * $threads)
${const}int $row = (${gid()}) * 8;
@for $loop2 = 0 .. 8
${const}int $i = $row + $loop2;
if ($i < $n) {
% else
@grid cdiv($n, block)
${const}int $i = ${gid()};
@guard $i < $n
% endif
${"" if kept else real ~ " "}$sum = ${literal(0)};
@for $loop = 0 .. $taps
$sum += ${read(X, i ~ " + " ~ loop, real)} * ${read(W, loop, real)};
@end
% set text = emit(epilogue, {"acc": sum})
% if not (kept and text == sum)
${store(Y, i, text)}
% endif
