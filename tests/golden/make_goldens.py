#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 hybridstate contributors
# SPDX-License-Identifier: Apache-2.0
"""Golden data of three tiny random Falcon-H1 models, computed in FP32 by transformers.

    pip install torch transformers safetensors
    python tests/golden/make_goldens.py tests/golden/data

Variant a: grouped gated norm, gate first; b: tied embeddings, no gated norm; c: the weights of a
with mamba_norm_before_gate. The tests need none of this: they read the files that it wrote, and
data/versions.json says with what. One single-shot prefill per length and one-token steps only:
releases before 2026 restart the state in multi-token calls that continue a cache.
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import FalconH1Config, FalconH1ForCausalLM

COMMON = dict(
    mamba_d_conv=4, mamba_conv_bias=True, rms_norm_eps=1e-5, hidden_act="silu",
    max_position_embeddings=512, torch_dtype="float32", embedding_multiplier=2.0,
    lm_head_multiplier=0.5, attention_in_multiplier=1.25, attention_out_multiplier=0.6,
    key_multiplier=0.75, ssm_in_multiplier=0.8, ssm_out_multiplier=1.5,
    mlp_multipliers=[0.9, 1.1], ssm_multipliers=[0.7, 0.9, 1.2, 1.4, 0.5],
    attention_bias=False, mlp_bias=False, mamba_proj_bias=False, projectors_bias=False,
    mamba_expand=2, rope_scaling=None)
A = dict(
    vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, mamba_d_ssm=48, mamba_n_heads=6,
    mamba_d_head=8, mamba_n_groups=2, mamba_d_state=16, mamba_chunk_size=16, mamba_rms_norm=True,
    mamba_norm_before_gate=False, tie_word_embeddings=False)
B = dict(
    vocab_size=64, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=8, mamba_d_ssm=32, mamba_n_heads=4,
    mamba_d_head=8, mamba_n_groups=1, mamba_d_state=16, mamba_chunk_size=8, mamba_rms_norm=False,
    mamba_norm_before_gate=False, tie_word_embeddings=True)
VARIANTS = {"a": A, "b": B, "c": {**A, "mamba_norm_before_gate": True}}
THETA = 1e11
LENGTHS = (2, 16, 32, 37)  # shorter than the convolution, chunk edges, ragged
STEPS = 8


def build(fields):
    """The model, every parameter drawn: norms, D and dt_bias of all ones would hide mistakes."""
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
    if int(transformers.__version__.split(".")[0]) < 5:
        rope = {"rope_theta": THETA}
    own = {k: v for k, v in {**COMMON, **fields}.items()
           if k not in ("torch_dtype", "rope_scaling")}
    config = FalconH1Config(pad_token_id=0, bos_token_id=1, eos_token_id=2, **rope, **own)
    config._attn_implementation = "eager"
    torch.manual_seed(1234)
    model = FalconH1ForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn_like(p)
            if name.endswith(("layernorm.weight", "mamba.norm.weight", "mamba.D")):
                p.copy_(1 + 0.2 * r)
            elif name.endswith("A_log"):
                p.copy_(torch.log(torch.arange(1, p.numel() + 1).float()) + 0.2 * r)
            elif name.endswith("dt_bias"):
                p.copy_(-4 * torch.rand_like(p))
            else:
                p.copy_(0.2 * r)
    mup = model.model.layers[0].mamba.mup_vector.flatten()
    ds = fields["mamba_d_ssm"]
    assert model.config.head_dim == fields["head_dim"]
    assert abs(mup[0] - 0.7) < 1e-6 and abs(mup[-1] - 0.5) < 1e-6 and abs(mup[2 * ds] - 1.2) < 1e-6
    return model


def states(output, layer):
    cache = getattr(output, "cache", None)
    cache = output.past_key_values if cache is None else cache
    one = lambda v: v[0] if isinstance(v, (list, tuple, dict)) else v
    if hasattr(cache, "layers"):
        held = cache.layers[layer]
        found = (one(held.conv_states), one(held.recurrent_states), held.keys, held.values)
    else:
        found = (cache.conv_states[layer], cache.ssm_states[layer], cache.key_cache[layer],
                 cache.value_cache[layer])
    conv, ssm, keys, values = (v.detach().clone().float() for v in found)
    return {"conv": conv[0, :, -3:], "ssm": ssm[0], "k": keys[0], "v": values[0]}, cache


def expected(model):
    layers = model.config.num_hidden_layers
    out, hooks = {}, []

    def grab(name, of_input):
        def hook(_, args, kwargs, result):
            value = (args[0] if args else kwargs["hidden_states"]) if of_input else result
            value = value[0] if isinstance(value, tuple) else value
            out.setdefault(name, value.detach().clone()[0])
        return hook

    for i, layer in enumerate(model.model.layers):
        for name, module, of_input in (("ssm_gated", layer.mamba.out_proj, True),
                                       ("mamba_out", layer.mamba, False),
                                       ("attn_out", layer.self_attn, False),
                                       ("layer_out", layer, False)):
            hook = grab(f"l{i}.{name}", of_input)
            hooks.append(module.register_forward_hook(hook, with_kwargs=True))
    generator = torch.Generator().manual_seed(99)
    ids = torch.randint(3, model.config.vocab_size, (1, max(LENGTHS)), generator=generator)
    with torch.no_grad():
        out["logits"] = model(ids, use_cache=False).logits[0]
        for hook in hooks:
            hook.remove()
        for length in LENGTHS:
            result = model(ids[:, :length], use_cache=True)
            for i in range(layers):
                found, cache = states(result, i)
                for kind, value in found.items():
                    if kind in ("conv", "ssm") or length == max(LENGTHS):
                        out[f"at{length}.l{i}.{kind}"] = value
        token, decoded, logits = torch.tensor([[5]]), [], []
        key = "cache" if hasattr(result, "cache") else "past_key_values"
        for _ in range(STEPS):
            decoded.append(token)
            result = model(token, use_cache=True, **{key: cache})
            _, cache = states(result, 0)
            logits.append(result.logits[0, -1])
            token = result.logits[:, -1:].argmax(-1)
        for i in range(layers):
            for kind, value in states(result, i)[0].items():
                if kind in ("conv", "ssm"):
                    out[f"decoded.l{i}.{kind}"] = value
        out["decode_logits"] = torch.stack(logits)
        all_ids = torch.cat([ids] + decoded, 1)
        whole = model(all_ids, use_cache=False).logits[0, len(ids[0]):]
    gap = (whole - out["decode_logits"]).abs().max().item()
    assert gap < 2e-5, f"prefill and decode differ by {gap}"
    out["ids"] = all_ids[0].float()  # as every other tensor here
    return out


def main(folder):
    root = pathlib.Path(folder)
    for name, fields in VARIANTS.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        model = build(fields)
        if name != "c":  # the weights of a
            weights = {k: v.detach().clone().contiguous() for k, v in model.named_parameters()}
            save_file(weights, root / name / "model.safetensors", metadata={"format": "pt"})
        result = {k: v.contiguous() for k, v in expected(model).items()}
        save_file(result, root / name / "expected.safetensors")
        config = {"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", **COMMON,
                  **fields, "rope_theta": THETA, "bos_token_id": 1, "eos_token_id": 2,
                  "pad_token_id": 0}
        if name == "b":  # the newer spelling of the same number
            del config["rope_theta"]
            config["rope_parameters"] = {"rope_type": "default", "rope_theta": THETA}
        text = json.dumps(config, indent=1, sort_keys=True) + "\n"
        (root / name / "config.json").write_text(text)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    (root / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
