"""Stopwords of prompts: words that carry no request and are not reported as unknown."""

from __future__ import annotations

_WORDS = """
    a about above absolutely accuracy achieve achieved actually again all allow allowed allows also always am amount an
    and any anything anyway are around as assign at attention avoid away back batch batches be because been before being
    below best better big bit block blocks both bottleneck bound bring bringing buffer buffers but by calculation call
    calls can can't cannot care cases change changing choose code cols column columns computation compute computed
    computes computing condition cost costs could count cuda cut data did do does doesn doesn't doing don don't done
    down each easy either element elements else enough especially etc evaluate even every everything exact exactly
    exceed expense extra far fast few fewer fine first fit fix float for four from full function further get gets
    getting give given global go goes going good gpu great guys had half halve halved happen happens happy hard has have
    having he hello help her here hey hi high higher hot how i i'd i'm i've if implement implementation important
    improve in inference inner input inputs instead instruction instructions into is isn't it it's its itself just kb
    keep keeping keeps kept kernel kernels kib know large larger layer layernorm least leave left less let let's level
    like limit little load loaded loads long look looks loop loops lot lots low lower made main make makes making many
    matmul matrix matter matters maximum may maybe mb me mean means memory metric might mind minimal minimise minimize
    minimum more most much must my near necessary need needed needs never new next nice no not nothing now number
    numbers nvidia of off often ok okay on once one ones only onto operation operations opt optimal or original other
    our out output outputs over overall part pass per perfectly perhaps place please pls plz possible possibly prefer
    preferably present pressure probably problem process profiler program push put quite rather read reads really reduce
    reduction register registers requirement requirements respect rest result results rewrite rid right row rows run
    running runs safe same say says second see seems set shall shared should show side similar simple since single size
    sizes small smaller so softmax some something soon spare speed spend stay stays step still stop store stored stores
    such suggest sum sure take takes taking target tell than thank thanks that that's the their them then there there's
    these they thing things think this those thread threads three through thx tight time times to together too total
    touch training transform transpose try trying turn twice two unless until up us usage use used uses using value
    values variant version versions very want wanted wants warp warps was way we we'd well were what when where which
    while whole width will wish with within work working works would write writes writing wrong wrote yet you your
    yourself
"""

FILLERS = frozenset(_WORDS.split())
"""English words around a request, and words about kernels that request nothing by themselves."""
