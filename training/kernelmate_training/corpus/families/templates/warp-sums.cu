%% One sum for each of many outputs, by a thread or by a warp: ranks over all pairs, or bits of words.
% if thread_per_row
@block 128
@grid cdiv($n, block)
${const}int $i = ${gid()};
@guard $i < $n
% else
@block 32, $warps
@grid cdiv($n, block_y)
${const}int $i = blockIdx.x * blockDim.y + threadIdx.y;
if ($i >= $n) return;
% endif
int $acc = 0;
@for $loop = ${"0" if thread_per_row else "threadIdx.x"} .. $last${"" if thread_per_row else " by 32"}
% if pattern
${const}unsigned int $tmp = ${term.format(a=x ~ "[" ~ i ~ " * " ~ last ~ " + " ~ loop ~ "]", b=pattern ~ "[" ~ loop ~ "]")};
% if bit_loop
for (int $loop2 = 0; $loop2 < 32; ++$loop2) $acc += ($tmp >> $loop2) & 1u;
% else
$acc += __popc($tmp);
% endif
% else
$acc += (${term.format(a=x ~ "[" ~ loop ~ "]", b=x ~ "[" ~ i ~ "]")}) ? 1 : 0;
% endif
@end
% if thread_per_row
$y[$i] = $acc;
% else
for (int $half = 16; $half > 0; $half /= 2) $acc += __shfl_xor_sync(0xffffffffu, $acc, $half);
@if threadIdx.x == 0
$y[$i] = $acc;
@end
% endif
