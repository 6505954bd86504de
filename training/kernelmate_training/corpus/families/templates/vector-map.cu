%% A map of floats or halves, `count` of them at a time or one.
%- macro one(i)
${stored(out, i, emit(value, reads("[" ~ i ~ "]", True)))}
%- endmacro
@block ${32 if tiny_block else size}
% if scalar_access or half_scalar
@grid cdiv($n, block)
${const}int $i = ${gid()};
@guard $i < $n
${one(i)}
% else
@grid cdiv($n, $count * block)
@const always
${const}int $i = $count * (${gid()});
if ($i + ${count - 1} < $n && $aligned) {
% for name in inputs
${const}float$count ${name}_$count = ${widen}*reinterpret_cast<const $pack*>($name + $i)${")" if widen else ""};
% endfor
float$count ${out.name}_$count;
% for lane in "xyzw"[:count]
${out.name}_$count.$lane = ${emit(value, reads("_" ~ count ~ "." ~ lane, False), "t" ~ lane)};
% endfor
*reinterpret_cast<$pack*>(${out.name} + $i) = ${narrow}${out.name}_$count${")" if narrow else ""};
}
else {
@for $loop = $i .. min($i + $count, $n)
${one(loop)}
% endif
