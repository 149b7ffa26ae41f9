"""The parts of BERT's layers that this folder's kernels compute, where they apply."""

import torch

from extern import dropping
from extern.attention import room, row_attention, takes
from extern.embedding import summed_embedding
from extern.gelu import bias_gelu
from extern.loss import token_loss
from extern.norm import residual_norm as kernel_norm
from extern.product import branch, product

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
DEVICES = ("cuda",)
"""Types of device that the kernels run on."""


def embedding_with_kernels(standard):
    """The sum of the embeddings by one kernel, with its norm and dropout; elsewhere `standard` itself."""

    def embedding(tokens, segments, positions, tables, dropout):
        words, norm = tables.words.weight, tables.norm
        if not _taken(words) or positions is not None:
            return standard(tokens, segments, positions, tables, dropout)
        places, kinds = tables.places.weight[: tokens.shape[1]], tables.segments.weight
        seed = dropping.seed(dropout, words.device)
        y, *_ = summed_embedding(
            tokens, segments, words, places, kinds, norm.weight, norm.bias, seed, norm.eps, dropout, _dtype(words)
        )
        return y

    return embedding


def self_attention_with_kernels(standard):
    """Attention of a row within itself by one kernel after the products; elsewhere `standard` itself."""
    if not room():
        return standard

    def self_attention(x, asking, linear, heads, bias, dropout, attention):
        rows, tokens, width = x.shape
        by_keys = bias is None or bias.shape[2] == 1
        if not (_taken(x) and by_keys and takes(tokens, asking.shape[1], width // heads)):
            return standard(x, asking, linear, heads, bias, dropout, attention)
        added = linear.bias.detach()
        if asking is x:
            packed, asking = _branched(x, linear.weight, added)
            query = packed.new_empty(0)
        else:
            query = product(_rows(asking), linear.weight[:width], added[:width])
            packed = product(_rows(x), linear.weight[width:], added[width:])
        of_keys = packed.new_empty(0) if bias is None else bias.view(rows, tokens)
        seed = dropping.seed(dropout, x.device)
        y, _ = row_attention(query, packed, linear.bias, of_keys, seed, tokens, heads, dropout)
        return y.view(asking.shape), asking

    return self_attention


def residual_norm_with_kernels(standard):
    """norm(residual + dropout(linear(x))) by one kernel after the product; elsewhere `standard` itself."""

    def residual_norm(x, linear, residual, norm, dropout):
        if not _taken(x) or residual.dtype != _dtype(x):
            return standard(x, linear, residual, norm, dropout)
        y = product(_rows(x), linear.weight, None)
        seed = dropping.seed(dropout, x.device)
        y, *_ = kernel_norm(y, linear.bias, residual.flatten(0, -2), norm.weight, norm.bias, seed, norm.eps, dropout)
        return y.view(residual.shape)

    return residual_norm


def feed_in_with_kernels(standard):
    """gelu(linear(x)) by one kernel after the product; elsewhere `standard` itself."""

    def feed_in(x, linear):
        if not _taken(x):
            return standard(x, linear)
        y, beside = _branched(x, linear.weight, None)
        return bias_gelu(y, linear.bias).unflatten(0, x.shape[:-1]), beside

    return feed_in


def loss_with_kernels(standard):
    """Cross entropy by one kernel; elsewhere `standard` itself."""

    def loss(scores, labels, absent):
        if scores.device.type not in DEVICES or scores.dtype not in DTYPES:
            return standard(scores, labels, absent)
        return token_loss(scores, labels, absent)[0]

    return loss


def _branched(x, weight, bias):
    """(x weight^T + bias, flattened to [M, n]; x). There is no gradient of the bias."""
    y, beside = branch(_rows(x), weight, bias)
    return y, beside.view(x.shape)


def _rows(x):
    """[M, d] in the dtype of a product."""
    return x.flatten(0, -2).to(_dtype(x))


def _taken(x):
    return x.device.type in DEVICES and _dtype(x) in DTYPES


def _dtype(x):
    """The dtype in which a product is computed: autocast's, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
