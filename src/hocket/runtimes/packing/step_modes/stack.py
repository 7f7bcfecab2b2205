"""Equal linear layers of several models as one: each model's weights become views of a stacked tensor.

The modules and optimisers stay as they are: a view is a parameter like any other, and a step of one model alone is
still possible at any time. Nothing has to be copied between the two forms.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.module import _has_any_global_hook

from hocket.runtimes.packing.dry_run import twin
from hocket.runtimes.packing.member import Member, changes, python_state

# Element by element, so that it does not matter whether a tensor is one model's or all models'.
ELEMENTWISE_MODULES = (
    nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Identity, nn.ReLU6,
)  # fmt: skip
ELEMENTWISE: tuple[Any, ...] = (
    torch.relu, torch.tanh, torch.sigmoid, functional.relu, functional.gelu, functional.silu, functional.tanh,
    functional.sigmoid, functional.elu, functional.leaky_relu,
)  # fmt: skip
ARITHMETIC = (operator.add, operator.mul, operator.sub, torch.add, torch.mul)  # of two tensors of one form
METHODS = ("relu", "tanh", "sigmoid")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class NotStackable(Exception):
    """Says what in the module cannot be stacked."""


def plan_of(module: nn.Module) -> fx.GraphModule:
    """The module's operations in order, if every one of them can be made for several models at once."""
    refuse_more_than_layers(module)
    try:
        called = twin(module)  # Tracing calls a module, which may count its calls.
        before = python_state(called)
        traced = fx.symbolic_trace(called)
    except Exception as error:
        raise NotStackable(f"its forward pass cannot be traced: {str(error).splitlines()[0]}") from error
    if changed := changes(before, python_state(called)):
        raise NotStackable(changed)
    inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise NotStackable(f"its forward pass takes {len(inputs)} inputs")
    linear = False
    for node in traced.graph.nodes:
        if node.op == "call_module":
            linear = linear or type(traced.get_submodule(node.target)) is nn.Linear
        elif node.op == "call_function" and not _known(node):
            raise NotStackable(f"it calls {getattr(node.target, '__name__', node.target)}")
        elif node.op == "call_method" and node.target not in (*METHODS, "flatten"):
            raise NotStackable(f"it calls .{node.target}()")
        elif node.op == "get_attr":
            raise NotStackable(f"it uses its tensor '{node.target}' outside of a layer")
    if not linear:
        raise NotStackable("it has no linear layer")
    return traced


def refuse_more_than_layers(module: nn.Module) -> None:
    """Raise if a layer has hooks: stacked layers are not called, so hooks of a layer or parameter would be ignored."""
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        raise NotStackable("hooks are called for all modules of the process")
    for name, part in module.named_modules():
        if any(getattr(part, hooks) for hooks in _HOOKS) or "forward" in vars(part):
            raise NotStackable(f"its layer '{name}' has a hook, or a forward of its own")
    seen: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise NotStackable(f"its parameter '{name}' has a hook")
        if id(parameter) in seen:
            raise NotStackable(f"its parameter '{name}' is its '{seen[id(parameter)]}', too")
        seen[id(parameter)] = name


def _known(node: fx.Node) -> bool:
    if node.target in ARITHMETIC:
        return all(isinstance(a, fx.Node) for a in node.args) and not node.kwargs
    if node.target is torch.flatten:
        return node.args[1:] == (1,) or node.kwargs == {"start_dim": 1}
    return node.target in ELEMENTWISE


def signature(plan: fx.GraphModule) -> tuple[object, ...]:
    """What must be equal for two modules to be stacked: operations, layers and their sizes."""
    found: list[object] = []
    for node in plan.graph.nodes:
        if node.op == "call_module":
            layer = plan.get_submodule(node.target)
            weights = tuple((p.dtype, p.requires_grad) for p in layer.parameters())
            found.append((type(layer), layer.extra_repr(), layer.training, weights))
        else:
            found.append((node.op, str(node.target), str(node.args), str(node.kwargs)))
    return tuple(found)


class Stack:
    """Several equal modules, called at once."""

    def __init__(self, members: Sequence[Member], plan: fx.GraphModule) -> None:
        self.members = list(members)
        self._nodes = list(plan.graph.nodes)
        self._modules = [dict(member.module.named_modules()) for member in members]
        self.stacked: dict[str, Tensor] = {}  # by the parameter's name
        for node in self._nodes:
            if node.op == "call_module" and type(self._modules[0][node.target]) is nn.Linear:
                for name, _ in self._modules[0][node.target].named_parameters(recurse=False):
                    self._join(f"{node.target}.{name}")
        own = dict(members[0].module.named_parameters())
        self.all_stacked = own.keys() == self.stacked.keys()

    def _join(self, name: str) -> None:
        if name in self.stacked:
            return
        parts = [member.module.get_parameter(name) for member in self.members]
        whole = torch.stack([part.detach() for part in parts]).requires_grad_(parts[0].requires_grad)
        for number, part in enumerate(parts):
            part.data = whole.detach()[number]
        self.stacked[name] = whole

    def part(self) -> None:
        """Each model gets weights of its own again."""
        for name in self.stacked:
            for member in self.members:
                parameter = member.module.get_parameter(name)
                parameter.data = parameter.detach().clone()
                parameter.grad = None

    def hand_out_gradients(self) -> None:
        """Each model's parameters get their part of the stacked gradients."""
        for name, whole in self.stacked.items():
            for number, member in enumerate(self.members):
                member.module.get_parameter(name).grad = None if whole.grad is None else whole.grad[number]

    def __call__(self, inputs: Tensor, stacked: bool) -> Tensor:
        """Outputs by model; `stacked`: the inputs are by model, too, else they are others's."""
        values: dict[fx.Node, tuple[Tensor, bool]] = {}
        for node in self._nodes:
            if node.op == "placeholder":
                values[node] = inputs, stacked
            elif node.op == "output":
                out, by_model = values[node.args[0]]
                return out if by_model else out.expand(len(self.members), *out.shape)
            else:
                values[node] = self._made(node, [values[a] for a in node.args if isinstance(a, fx.Node)])
        raise AssertionError("a graph without an output")

    def _made(self, node: fx.Node, given: list[tuple[Tensor, bool]]) -> tuple[Tensor, bool]:
        (value, by_model), target = given[0], node.target
        if node.op == "call_module":
            layer = self._modules[0][str(target)]
            if type(layer) is nn.Linear:
                return self._linear(str(target), value, by_model), True
            if isinstance(layer, nn.Flatten) and layer.start_dim == 1 and layer.end_dim == -1:
                return value.flatten(1 + by_model), by_model
            if isinstance(layer, ELEMENTWISE_MODULES):
                return layer(value), by_model
            return self._one_by_one(str(target), value, by_model), True
        if target in ARITHMETIC:
            if given[0][1] != given[1][1]:
                given = [v if v[1] else (v[0].expand(len(self.members), *v[0].shape), True) for v in given]
            function: Any = target
            return function(given[0][0], given[1][0]), given[0][1]
        if target is torch.flatten or target == "flatten":
            return value.flatten(1 + by_model), by_model
        if node.op == "call_method":
            return getattr(value, str(target))(), by_model
        function = target
        return function(value, *node.args[1:], **node.kwargs), by_model

    def _linear(self, target: str, value: Tensor, by_model: bool) -> Tensor:
        weight, bias = self.stacked[f"{target}.weight"], self.stacked.get(f"{target}.bias")
        count, outputs, inputs = weight.shape
        if not by_model:  # One multiplication by all weights: the input is read once.
            wide = functional.linear(
                value, weight.view(count * outputs, inputs), None if bias is None else bias.view(-1)
            )
            return wide.view(*value.shape[:-1], count, outputs).movedim(-2, 0)
        flat = value.reshape(count, -1, inputs)
        if bias is None:
            out = torch.bmm(flat, weight.transpose(1, 2))
        else:
            out = torch.baddbmm(bias.unsqueeze(1), flat, weight.transpose(1, 2))
        return out.view(*value.shape[:-1], outputs)

    def _one_by_one(self, target: str, value: Tensor, by_model: bool) -> Tensor:
        """A layer that draws, or keeps statistics: each model's own, on its part, with its own generators."""
        parts = []
        for number, member in enumerate(self.members):
            member.rng.install()
            try:
                parts.append(self._modules[number][target](value[number] if by_model else value))
            finally:
                member.rng.read_back()
        return torch.stack(parts)
