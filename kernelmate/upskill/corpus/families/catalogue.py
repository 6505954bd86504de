"""The list of all families."""
from kernelmate.upskill.corpus.families import Family
from kernelmate.upskill.corpus.families.maps import random_map
FAMILIES=(
 Family("unary-map","memory",random_map("unary-map","memory",inputs=("all",))),
 Family("binary-map","memory",random_map("binary-map","memory",inputs=("all","all"))),
 Family("inplace-map","memory",random_map("inplace-map","memory",inputs=("all",),inplace=True)),
 Family("bias-map","memory",random_map("bias-map","memory",inputs=("all","col"),flat=False)),
 Family("half-map","memory",random_map("half-map","memory",inputs=("all","all"),dtypes=("float16","bfloat16"),extra=(0,2))),
 Family("int-map","memory",random_map("int-map","memory",inputs=("all","all"),dtypes=("int32",))),
)
from kernelmate.upskill.corpus.families import row_programs as rp
from kernelmate.upskill.corpus.families.rows import row_problem
from functools import partial
def rowfam(name,kind,make,**kw):
    def draw(rng): return row_problem(rng,name,kind,make,**kw)
    return Family(name,kind,draw)
FAMILIES+=tuple(rowfam(f.__name__.replace('_','-'),'memory',f) for f in (rp.softmax,rp.log_softmax,rp.log_sum_exp,rp.layer_norm,rp.residual_norm,rp.statistics,rp.rms_norm,rp.unit_length,rp.extreme_scale,rp.centred,rp.row_total,rp.row_product,rp.cosine,rp.gated_norm,rp.any_rows))
