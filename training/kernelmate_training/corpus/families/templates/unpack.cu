%% Fields of words taken apart: a thread per word, or per field.
@const restrict
@block 256
% if chunked
@grid cdiv($n, block)
${const}int $i = ${gid()};
@guard $i < $n
${const}unsigned int $tmp = $x[$i];
@for $loop = 0 .. $fields
$y[$i * $fields + $loop] = ${written("((" ~ tmp ~ " >> (" ~ width ~ " * " ~ loop ~ ")) & " ~ mask ~ ")", "" if double_literals else "f")};
% else
@grid cdiv($n * $fields, block)
${const}int $i = ${gid()};
@guard $i < $n * $fields
${const}unsigned int $tmp = $x[$i / $fields];
$y[$i] = ${written("((" ~ tmp ~ " >> (" ~ width ~ " * (" ~ i ~ " % " ~ fields ~ "))) & " ~ mask ~ ")", "" if double_literals else "f")};
% endif
