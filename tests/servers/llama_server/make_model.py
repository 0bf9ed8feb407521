"""Makes a tiny GGUF model of random weights that ends its sentences and calls tools when asked.

    python make_model.py MODEL.gguf

A model of only random weights would babble for ever. So one number of every token's vector is the
same, through which the output weights prefer letters, closing quotes and the end; two more numbers
belong to the tokens after which the chat template lets it call a tool, or not. What stands between
the braces of a call is then chosen by llama.cpp's grammar.
"""

import sys

import numpy as np
from gguf import GGUFWriter, TokenType

WIDTH = 64
HEADS = 4
CONTROLS = ("<|im_start|>", "<|im_end|>", "<|act|>", "<|talk|>")
# Of these llama.cpp makes its tool grammar, which begins when the model writes the first one.
MARKS = ("<tool_call>", "</tool_call>")

# In the manner of Hermes and Qwen, which llama.cpp knows: calls as JSON between two marks.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Answer with <tool_call>{"name": NAME, "arguments": {...}}</tool_call> to call one of:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": \
{{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if tools and messages[-1].role == 'user' %}<|act|>{% else %}<|talk|>{% endif %}
{%- endif %}"""


def byte_letters() -> list[str]:
    """Return how the tokens of the 256 bytes are written, as in GPT-2's vocabulary."""
    plain = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def weights(tokens: list[str]) -> dict[str, np.ndarray]:
    """Return the tensors by their names."""
    chance = np.random.default_rng(7)

    def random(*shape: int, size: float = 0.02) -> np.ndarray:
        return (chance.standard_normal(shape) * size).astype(np.float32)

    embedding, output = random(len(tokens), WIDTH), random(len(tokens), WIDTH, size=0.3)
    embedding[:, :3] = (1.0, 0.0, 0.0)
    embedding[tokens.index("<|act|>"), :3] = (0.0, 1.0, 0.0)
    embedding[tokens.index("<|talk|>"), :3] = (0.0, 0.0, 1.0)
    output[:, :3] = -1.5
    letters = [ord(letter) for letter in "abcdefghijklmnopqrstuvwxyz "]
    output[letters, 0] = output[letters, 2] = 0.0
    output[[ord('"'), tokens.index("<|im_end|>")], 0] = 0.1
    output[tokens.index("<tool_call>"), 1] = 6.0
    ones = np.ones(WIDTH, dtype=np.float32)
    return {
        "token_embd.weight": embedding,
        "output.weight": output,
        "output_norm.weight": ones,
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        **{
            f"blk.0.{name}.weight": random(WIDTH, WIDTH)
            for name in ("attn_q", "attn_k", "attn_v", "attn_output")
        },
        **{
            f"blk.0.{name}.weight": random(WIDTH, WIDTH)
            for name in ("ffn_gate", "ffn_up", "ffn_down")
        },
    }


def make(path: str) -> None:
    """Write the model."""
    tokens = [*byte_letters(), "th", *MARKS, *CONTROLS]
    kinds = [TokenType.NORMAL] * 257 + [TokenType.USER_DEFINED] * 2 + [TokenType.CONTROL] * 4
    model = GGUFWriter(path, "llama")
    model.add_context_length(8192)
    model.add_embedding_length(WIDTH)
    model.add_block_count(1)
    model.add_feed_forward_length(WIDTH)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_vocab_size(len(tokens))
    model.add_tokenizer_model("gpt2")
    model.add_tokenizer_pre("gpt-2")
    model.add_token_list(tokens)
    model.add_token_types(kinds)
    model.add_token_merges(["t h"])
    model.add_eos_token_id(tokens.index("<|im_end|>"))
    model.add_add_bos_token(False)
    model.add_chat_template(TEMPLATE)
    for name, tensor in weights(tokens).items():
        model.add_tensor(name, tensor)
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


if __name__ == "__main__":
    make(sys.argv[1])
