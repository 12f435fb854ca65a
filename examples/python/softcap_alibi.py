import numpy as np
import fovea

q, k, v = (np.random.standard_normal((2, 8, 256, 64)).astype(np.float32) for _ in range(3))
slopes = np.float32(2.0) ** -np.arange(1, 9, dtype=np.float32)

o, pull = fovea.vjp(q, k, v, is_causal=True,
                    score_mod="cap * tanh(score / cap) + slopes[h] * (k - q)",
                    tensors={"slopes": slopes}, scalars={"cap": 30.0})
grads = pull(np.ones_like(o))            # q, k, v, slopes, cap

fovea.formula("alibi", mask="sliding(24)").show(sq=64, heads=8).save("window.png")
print(fovea.explain("b=4 h=16 sq=4096 d=128 dtype=bf16 mask=causal", device="h200"))
