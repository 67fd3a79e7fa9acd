"""What the census counts, against torch's own counter and against counts by hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from problems.census import Census


def count(call, *tensors, weights=()):
    with torch.no_grad(), Census([*tensors, *weights]) as census:
        call(*tensors)
    return census


def test_products_and_convolutions_are_counted_as_torch_counts_them():
    convolutions = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2)]
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(196, 5))
    x = torch.rand(2, 3, 8, 8)
    with torch.no_grad(), FlopCounterMode(display=False) as torchs_own:
        model(x)
    assert count(model, x).matmul_flop == torchs_own.get_total_flops() > 0


def test_fused_attention_counts_as_its_two_products():
    q, k, v = torch.rand(2, 3, 16, 8), torch.rand(2, 3, 32, 8), torch.rand(2, 3, 32, 8)
    assert count(F.scaled_dot_product_attention, q, k, v).matmul_flop == 2 * (2 * 2 * 3 * 16 * 32 * 8)


def test_a_recurrent_layer_counts_as_its_products():
    lstm, x = nn.LSTM(10, 20), torch.rand(7, 3, 10)
    assert count(lstm, x).matmul_flop == 2 * 7 * 3 * (4 * 20 * 10 + 4 * 20 * 20)


def test_a_matrix_times_a_vector_counts():
    assert count(torch.mv, torch.rand(6, 5), torch.rand(5)).matmul_flop == 2 * 6 * 5


@pytest.mark.parametrize(
    ("call", "ops"),
    [
        (torch.relu, 240),
        (lambda x: torch.exp(x) + 1, 480),
        (torch.sum, 240),
        (lambda x: x.softmax(-1), 5 * 240),
        (lambda x: F.avg_pool1d(x, 4), 240),
        (lambda x: x.transpose(0, 1).contiguous(), 0),
        (lambda x: torch.cat([x, x]), 0),
    ],
    ids=["relu", "exp then add", "sum", "softmax", "pool", "transpose", "concatenate"],
)
def test_operations_per_element(call, ops):
    assert count(call, torch.rand(2, 3, 40)).pointwise_ops == ops


@pytest.mark.parametrize(
    ("call", "length"),
    [
        (torch.relu, 1),
        (lambda x: x.amax(-1), 1),
        (lambda x: x.sum((1, 2)), 6 * 40),
        (lambda x: x.mean(-1), 40),
        (lambda x: x.softmax(1), 6),
        (lambda x: x.cumsum(0), 4),
        (lambda x: x @ torch.rand(40, 3), 40),
        (lambda x: F.layer_norm(x, (6, 40)), 240),
        (lambda x: F.group_norm(x, 3), 80),
        (lambda x: F.batch_norm(x, None, None, training=True), 160),
        (lambda x: F.conv1d(x, torch.rand(2, 6, 5)), 30),
        (lambda x: F.conv1d(x, torch.rand(6, 2, 5), groups=3), 10),
        (lambda x: F.conv_transpose1d(x, torch.rand(6, 2, 5)), 30),
        (lambda x: F.avg_pool1d(x, 4), 4),
        (lambda x: F.adaptive_avg_pool2d(x, 1), 240),
        (lambda x: F.mse_loss(x, x), 960),
    ],
)
def test_the_reduction_length_is_the_number_of_terms(call, length):
    assert count(call, torch.rand(4, 6, 40)).reduction_length == length


def test_an_input_is_read_once_however_often_it_is_used():
    x = torch.rand(10, 10)
    assert count(lambda x: x.exp() + x.t().relu() + x, x).bytes_read == 400


def test_an_input_that_is_not_used_is_not_read():
    x, y = torch.rand(10), torch.rand(10)
    assert count(lambda x, y: x + 1, x, y).bytes_read == 40


def test_a_slice_reads_only_itself():
    assert count(lambda x: x[:, :3].relu(), torch.rand(10, 10)).bytes_read == 120


def test_an_expanded_input_reads_what_is_stored():
    assert count(torch.relu, torch.rand(10, 1).expand(10, 10)).bytes_read == 40


def test_an_embedding_reads_the_rows_it_returns():
    table, rows = torch.rand(1000, 8), torch.arange(4)
    assert count(F.embedding, rows, table).bytes_read == 4 * 8 * 4 + 4 * 8


def test_a_linear_layers_weights_are_read_through_their_transpose():
    linear, x = nn.Linear(8, 4), torch.rand(2, 8)
    assert count(linear, x, weights=linear.parameters()).bytes_read == 4 * (16 + 32 + 4)


def test_counts_on_fake_tensors_equal_those_on_real_ones():
    from torch._subclasses.fake_tensor import FakeTensorMode

    def run():
        model = nn.Sequential(nn.Conv1d(3, 4, 3), nn.GELU(), nn.Linear(8, 2), nn.LSTM(2, 3))
        x = torch.rand(5, 3, 10)
        census = count(model, x, weights=model.parameters())
        return census.matmul_flop, census.pointwise_ops, census.bytes_read, census.reduction_length

    with FakeTensorMode():
        faked = run()
    assert faked == run()
