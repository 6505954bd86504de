%% A row's reductions one after another, and what is stored of it: by a thread, a warp or a block for each row.
% set alone = thread_per_row
% set serial = serial_block and not alone
% set warp = by_warp and not alone and not serial
% set stores = through_memory and two_pass_softmax
% set all = team(size, tid, real)
% set bufs = [tile, tile2, tile ~ "_3"][:(passes | length) if second_buffer else 1]
% set here = at(row, cols, col)
% set found = namespace(names={})
%- macro begin(together)
% if alone or (serial and not together)
@for $col = 0 .. $cols
% else
@for $col = $tid .. $cols by ${"32" if warp else "blockDim.x"}
% endif
%- endmacro
%- macro share(names)
% if serial
% for name in names
shared_$name = $name;
% endfor
}
__syncthreads();
% for name in names
$real $name = shared_$name;
% endfor
% endif
%- endmacro
%- macro join(number, op, value)
% if warp
${all.shuffles(op, value)}
% elif not (alone or serial)
${all.reduced(op, value, bufs[[number, bufs | length - 1] | min], again=(bufs | length == 1 and number < passes | length - 1))}
% endif
%- endmacro
%- macro declare(one)
$real ${one.name} = ${neutral(one.op)};
%- endmacro
% if alone
@block 128
@grid cdiv($rows, block)
${const}int $row = ${gid()};
@guard $row < $rows
% elif warp
@block 32, ${size // 32}
@grid cdiv($rows, block_y)
${const}int $row = ${gid("y").replace("blockIdx.y", "blockIdx.x")};
${const}int $tid = threadIdx.x;
@leave $row < $rows
% else
@block $size
@grid $rows
% for one in passes if serial
__shared__ $real shared_${one.name};
% endfor
% for name in bufs if not serial
__shared__ $real $name[${all.elements}];
% endfor
${const}int $row = blockIdx.x;
${const}int $tid = threadIdx.x;
% endif
% set max = "fmax" if real == "double" else "fmaxf"
% set joined_passes = (moments and not two_pass_moments) or (online and not two_pass_softmax)
% if joined_passes
% set first, second = passes[0], passes[1]
% set a, b = first.name, second.name
% if serial
if ($tid == 0) {
% endif
${declare(first)}
${declare(second)}
${begin(False)}
% if moments
${const}$real $tmp = ${emit(first.expr, reads({}, real))};
$a += $tmp;
$b += $tmp * $tmp;
% else
% set exp = "exp" if real == "double" else "expf"
${const}$real $tmp = ${emit(first.expr, reads({}, real))};
${const}$real ${a}_new = ${max}($a, $tmp);
$b = $b * ${exp}($a - ${a}_new) + ${exp}($tmp - ${a}_new);
$a = ${a}_new;
% endif
@end
${share([a, b])}
% if moments
${join(0, "sum", a)}
${join(1, "sum", b)}
$a = $a / $cols;
$b = ${max}($b / $cols - $a * $a, ${"0.0" if real == "double" else "0.0f"});
% elif not (alone or serial)
${const}$real own_$a = $a;
${join(0, "max", a)}
$b *= ${exp}(own_$a - $a);
${join(1, "sum", b)}
% endif
% set found.names = {a: a, b: b}
% endif
% for one in passes
% if not (joined_passes and loop.index0 < 2)
% set number = loop.index0
% set kept = global_accumulator and alone
% set sum = outputs[0].name ~ "[" ~ row ~ "]" if kept else one.name
% if kept
$sum = ${neutral(one.op)};
% else
% if serial
if ($tid == 0) {
% endif
${declare(one)}
% endif
${begin(False)}
% set text = emit(one.expr, reads(found.names, real))
% if stores and number == 1
${outputs[0].name}[$here] = $text;
${grown(one.op, sum, outputs[0].name ~ "[" ~ here ~ "]")}
% else
${grown(one.op, sum, text)}
% endif
@end
${share([one.name])}
${join(number, one.op, one.name)}
% if one.post
${one.name} = ${emit(one.post, reads(dict(found.names, **{one.name: one.name}), real))};
% endif
% set found.names = dict(found.names, **{one.name: sum})
% endif
% endfor
% if element
% set inverted = element.op == "div" and not divides
% if inverted
${const}$real inv = ${"1.0" if real == "double" else "1.0f"} / ${bracket(element.args[1], reads(found.names, real))};
% endif
${begin(True)}
% set out = outputs[0]
% if stores and inverted
${out.name}[$here] *= inv;
% elif stores
${out.name}[$here] = ${out.name}[$here] / ${passes[1].name};
% else
${store(out, here, emit(scaled if inverted else element, reads(found.names, real)))}
% endif
@end
% endif
% if values and not (global_accumulator and alone)
% if not alone
@if $tid == 0
% endif
% for value in values
${store(outputs[loop.index0 + (1 if element else 0)], row, emit(value, reads(found.names, real)))}
% endfor
% if not alone
@end
% endif
% endif
