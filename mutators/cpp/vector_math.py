"""Float functions in plain arithmetic, which a compiler can vectorise; texts to be put into a kernel.

A call of libm's `expf` keeps gcc from vectorising the loop around it. The functions below are branch-free (only
selects), so a loop over them becomes SIMD code. They handle the whole range: infinities, NaN, subnormal numbers and
zeros give what libm gives.

Where the numbers come from: each polynomial was fitted by us in float64 to the remainder named in its comment, on
Chebyshev nodes, by least squares with weights re-estimated until the relative error was level (Lawson's
iteration), then rounded to float32. ln 2 is split in two so that the product of its upper part (15 bits) with an
exponent (8 bits) is exact. Largest errors that we measured against float64 over a million points per function, with
and without FMA, in units in the last place (glibc 2.36's own in brackets): exp 0.96 (0.50), expm1 1.5 (0.8),
log 0.85 (0.80), log1p 1.5 (0.8), tanh 1.4 (2.1), erf 2.3 (0.9). tests/mutators/test_vector_math.py repeats it.
"""

from __future__ import annotations

HEADER = """\
static inline float kb_float(int bits) { return __builtin_bit_cast(float, bits); }
static inline int kb_bits(float x) { return __builtin_bit_cast(int, x); }
// a or b by bit mask: unlike ?: it leaves gcc no branch into which it could sink a, which would stop vectorisation
static inline float kb_select(bool which, float a, float b) {
    const int mask = -(int)which;
    return kb_float((kb_bits(a) & mask) | (kb_bits(b) & ~mask));
}
// 2^n for -126 <= n <= 127
static inline float kb_pow2(int n) { return kb_float((n + 127) << 23); }
// nearest integer; |x| < 2^22
static inline int kb_round(float x) { return (int)(x + __builtin_copysignf(0.5f, x)); }
// e^r = 1 + r + r^2 p(r) for |r| <= ln(2)/2; this is r + r^2 p(r)
static inline float kb_expm1_core(float r) {
    float p = 0.00019788161f;
    p = p * r + 0.0013946866f;
    p = p * r + 0.0083335107f;
    p = p * r + 0.041666266f;
    p = p * r + 0.16666666f;
    p = p * r + 0.5f;
    return p * r * r + r;
}
static inline float kb_reduce(float x, int n) { return (x - n * 0.69314575f) - n * 1.4286068e-06f; }
"""

EXP = """\
// e^x; 2^n in two factors, so that overflow and subnormal results round by themselves. The clamps let NaN pass:
// whatever integer its conversion gives, the polynomial is NaN and so is the product.
static inline float kb_exp(float x) {
    float c = x < -105.0f ? -105.0f : x;
    c = c > 89.0f ? 89.0f : c;
    const int n = kb_round(c * 1.442695f);
    const float y = 1.0f + kb_expm1_core(kb_reduce(c, n));
    const int half = n >> 1;
    return y * kb_pow2(half) * kb_pow2(n - half);
}
"""

EXPM1 = """\
// e^x - 1 = (2^n - 1) + 2^n (e^r - 1), halved so that n = 128 does not overflow early; near 0, n = 0 and it is exact
static inline float kb_expm1(float x) {
    float c = x < -30.0f ? -30.0f : x;
    c = c > 89.0f ? 89.0f : c;
    const int n = kb_round(c * 1.442695f);
    const float m = kb_expm1_core(kb_reduce(c, n));
    const float half = kb_pow2(n - 1);
    const float y = ((half - 0.5f) + half * m) * 2.0f;
    return __builtin_copysignf(y, x);
}
"""

LOG = """\
// ln x; x = 2^e m with sqrt(1/2) <= m < sqrt(2), ln(1 + t) = t - t^2/2 + t^3 p(t)
static inline float kb_log(float x) {
    const bool tiny = x < 1.17549435e-38f;
    const float scaled = kb_select(tiny, x * 33554432.0f, x);
    const int shifted = kb_bits(scaled) - 0x3f3504f3;
    const float e = (float)((shifted >> 23) - (-(int)tiny & 25));
    const float t = kb_float((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f;
    float p = 0.067685157f;
    p = p * t - 0.11713103f;
    p = p * t + 0.11898888f;
    p = p * t - 0.1240054f;
    p = p * t + 0.14217544f;
    p = p * t - 0.16668187f;
    p = p * t + 0.20002216f;
    p = p * t - 0.25000009f;
    p = p * t + 0.3333331f;
    const float square = t * t;
    const float rest = p * t * square - 0.5f * square + e * 1.4286068e-06f;
    float y = (rest + t) + e * 0.69314575f;
    y = kb_select(x < __builtin_inff(), y, x);
    y = kb_select(x < 0.0f, __builtin_nanf(""), y);
    return kb_select(x == 0.0f, -__builtin_inff(), y);
}
"""

LOG1P = """\
// ln(1 + x): the rounding of 1 + x is put back
static inline float kb_log1p(float x) {
    const float u = 1.0f + x;
    const float lost = x - (u - 1.0f);
    const float log_u = kb_log(u);
    const float y = kb_select((u > 0.0f) & (u < __builtin_inff()), log_u + lost / u, log_u);
    return kb_select(x == 0.0f, x, y);
}
"""

TANH = """\
// tanh |x|: a + a^3 p(a^2) below 0.625, 1 - 2 / (e^2a + 1) above
static inline float kb_tanh(float x) {
    const float a = __builtin_fabsf(x);
    const float z = a * a;
    float p = 0.0021429588f;
    p = p * z - 0.008177395f;
    p = p * z + 0.0217007f;
    p = p * z - 0.053946763f;
    p = p * z + 0.13333206f;
    p = p * z - 0.3333333f;
    const float small = a + a * z * p;
    const float large = 1.0f - 2.0f / (kb_exp(2.0f * a) + 1.0f);
    return __builtin_copysignf(kb_select(a < 0.625f, small, large), x);
}
"""

ERF = """\
// erf |x|: a p(a^2) below 1, 1 - e^q(|x|) above, q fitted to ln erfc
static inline float kb_erf(float x) {
    const float a = __builtin_fabsf(x);
    const float z = a * a;
    float p = 7.8538578e-05f;
    p = p * z - 0.00080101925f;
    p = p * z + 0.0051883277f;
    p = p * z - 0.026853811f;
    p = p * z + 0.112835854f;
    p = p * z - 0.37612626f;
    p = p * z + 0.1283791f;
    const float small = p * a + a;
    const float u = (a > 3.95f ? 3.95f : a) - 2.4f;
    float q = -2.0828619e-05f;
    q = q * u + 8.1472768e-05f;
    q = q * u - 0.00046361727f;
    q = q * u + 0.0024002427f;
    q = q * u - 0.01176158f;
    q = q * u - 0.94050175f;
    q = q * u - 5.164237f;
    q = q * u - 7.2809753f;
    const float large = 1.0f - kb_exp(q);
    return __builtin_copysignf(kb_select(a < 1.0f, small, large), x);
}
"""

TEXTS = {"exp": EXP, "expm1": EXPM1, "log": LOG, "log1p": LOG1P, "tanh": TANH, "erf": ERF}
NEEDS = {"exp": (), "expm1": (), "log": (), "log1p": ("log",), "tanh": ("exp",), "erf": ("exp",)}


def definitions(names: set[str], present: str = "") -> str:
    """C++ text that defines `kb_<name>` for `names` and what they need, less what `present` already defines."""
    wanted: list[str] = []
    for name in TEXTS:
        needed_by = any(name in NEEDS[other] for other in names)
        if name in names or needed_by:
            wanted.append(name)
    parts = [] if "kb_expm1_core(" in present else [HEADER]
    parts += [TEXTS[name] for name in wanted if f"float kb_{name}(float" not in present]
    return "".join(parts)
