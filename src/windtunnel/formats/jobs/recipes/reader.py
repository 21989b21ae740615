"""Reads a Python recipe without running it: a function that builds a configuration by assignments and calls.

Followed: assignments, functions of the same file and of files that it imports from the same tree, conditions whose outcome the text
gives. Everything else is a value that is not known. Nothing is imported or executed.
"""

from __future__ import annotations

import ast
import operator
import warnings
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.formats.jobs.recipes.values import UNKNOWN, Made, Named, Unknown
from windtunnel.formats.text.source import read_source

PARTIALS = ("run.Partial", "nemo_run.Partial")
NEMO_RUN = ("run.Config", "nemo_run.Config", *PARTIALS)
"""Calls of NeMo-Run that name a class or a function and its arguments, to be called later."""
STARTED = ("llm.train", "llm.pretrain", "llm.finetune", "api.pretrain", "api.finetune", "api.train", "run.run")
"""Functions of NeMo 2 that train what they are given, as `run.Partial` would be told to."""
KEPT = ("model_registry", "default_peft_config", "to_graph_trainer_config")
"""Ends of the names of functions that stay calls: their arguments say more than what they return."""
SCRIPT = "script"
"""What a file without functions is called that trains when it is run."""
_DEEPEST, _MOST_STEPS, _MOST_FILES = 25, 50_000, 60
_ARITHMETIC: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_COMPARED: dict[type[ast.AST], Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass
class PythonFile:
    """A file: its functions and classes, its constants, and where its other names come from."""

    path: Path | None
    tree: ast.Module
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)  # name here -> (module, name there)


@dataclass
class Recipe:
    """The configuration that a function returns, the functions that it called and did not find, lines not followed, and the
    functions that were followed."""

    name: str
    value: Made
    calls: list[str]
    notes: list[str]
    followed: list[str] = field(default_factory=list)


def module_of(text: str, where: str, path: Path | None = None) -> PythonFile:
    """The parsed file. FileError for text that is not Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's, of literals such as 1if
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise FileError(where, f"no Python ({error.__class__.__name__}{f' in line {line}' if line else ''})", "a recipe") from None
    module = PythonFile(path, tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            module.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            module.constants[node.targets[0].id] = node.value
        elif isinstance(node, ast.ImportFrom):
            take_imports(node, module)
    script = ast.FunctionDef(
        SCRIPT, ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]), _lines_of_script(tree), []
    )
    if not module.functions and _starts(script):
        module.functions[SCRIPT] = script
    return module


def _lines_of_script(tree: ast.Module) -> list[ast.stmt]:
    """What a file does when it is run: its lines, and those behind `if __name__ == "__main__"`."""
    lines: list[ast.stmt] = []
    for node in tree.body:
        lines += node.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) else [node]
    return lines


def take_imports(node: ast.ImportFrom, module: PythonFile) -> None:
    """Adds the names of `from ... import ...` to those of the file."""
    for alias in node.names:
        module.imports[alias.asname or alias.name] = ("." * node.level + (node.module or ""), alias.name)


def home_of(name: str, module: PythonFile) -> str:
    """The package that a name of a file comes from: the last word of its path."""
    where = module.imports.get(name, ("", ""))[0].lstrip(".")
    return where.rpartition(".")[2] or (module.path.resolve().parent.name if module.path is not None else "")


def recipes_of(module: PythonFile) -> list[str]:
    """Functions that need no argument and are not private: those that a user can name. Of a script, those that train.

    In a file of NeMo's, which names the parts of a job by functions too, only those that it offers as whole jobs.
    """
    listed = [name for name, node in module.functions.items() if not name.startswith("_") and not _required_arguments(node)]
    trains = [name for name in listed if _starts(module.functions[name])]
    return [name for name in listed if _makes_a_job(module.functions[name])] or trains or listed


def _starts(node: ast.FunctionDef) -> bool:
    """Whether a function calls one of NeMo 2's that train."""
    calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
    return any(isinstance(call, ast.Attribute) and ast.unparse(call).endswith(STARTED) for call in calls)


def _makes_a_job(node: ast.FunctionDef) -> bool:
    """Whether a function is decorated as one that makes a job: `@run.cli.factory(target=...)` of NeMo-Run."""
    calls = [one for one in node.decorator_list if isinstance(one, ast.Call)]
    makers = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "factory"]
    return any(word.arg == "target" for call in makers for word in call.keywords)


def _required_arguments(node: ast.FunctionDef) -> int:
    return len(node.args.args) - len(node.args.defaults)


def read_recipe(module: PythonFile, name: str) -> Recipe:
    """The configuration of one function. UnknownName for a name that the file lacks, SpecError for one that returns none."""
    if name not in module.functions:
        raise UnknownName("recipe", name, recipes_of(module))
    reader = _Reader()
    value = reader.call_function(module, module.functions[name], [], {})
    value = reader.started if value is None and reader.started is not None else value
    if not isinstance(value, Made):
        raise SpecError(
            "recipe", name, "a function that returns a configuration", f"Recipes here: {', '.join(recipes_of(module)[:8])}."
        )
    return Recipe(name, value, reader.calls, reader.notes, list(dict.fromkeys(reader.followed)))


_VARIABLES = ("os.environ.get", "os.getenv")
"""What reads a variable of the environment, which is taken not to be set."""
_NUMBERS = ("int", "float", "bool", "str")


def _number(name: str, args: list[Any]) -> Any:
    """A value as Python's `int`, `float`, `bool` or `str` makes it."""
    if len(args) != 1 or not isinstance(args[0], (str, int, float)):
        return UNKNOWN
    try:
        return {"int": int, "float": float, "bool": bool, "str": str}[name](args[0])
    except (ValueError, OverflowError):
        return UNKNOWN


def _argument(parser: Made, method: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A call of argparse's: an argument is a field of the parser with its default, and what is parsed is the parser itself."""
    flag = next((one for one in reversed(args) if isinstance(one, str)), None)
    if method == "add_argument" and flag is not None:
        action = kwargs.get("action")
        usual = {"store_true": False, "store_false": True}.get(action) if isinstance(action, str) else None
        parser.fields[str(kwargs.get("dest") or flag.lstrip("-").replace("-", "_"))] = kwargs.get("default", usual)
    return [parser, []] if method == "parse_known_args" else parser


def _vague(value: Any) -> bool:
    """Whether a condition on a value is open: it is not known, or a function that is not followed returned it."""
    return isinstance(value, (Unknown, Named)) or isinstance(value, Made) and value.name.rpartition(".")[2].islower()


class _Reader:
    def __init__(self) -> None:
        self.steps, self.depth = 0, 0
        self.calls: list[str] = []
        self.notes: list[str] = []
        self.followed: list[str] = []
        self.files: dict[Path, PythonFile | None] = {}
        self.started: Made | None = None

    def call_function(self, module: PythonFile, node: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.depth >= _DEEPEST:
            return UNKNOWN
        scope: dict[str, Any] = {}
        names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        for name, default in zip(reversed(names), reversed(node.args.defaults), strict=False):
            scope[name] = self.value(default, module, {})
        for arg, kw_default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=False):
            scope[arg.arg] = self.value(kw_default, module, {}) if kw_default is not None else UNKNOWN
        scope |= dict(zip(names, args, strict=False)) | kwargs
        self.depth += 1
        try:
            self.block(node.body, module, scope)
        except _Return as result:
            return result.value
        finally:
            self.depth -= 1
        return None

    def block(self, body: list[ast.stmt], module: PythonFile, scope: dict[str, Any]) -> None:
        for node in body:
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise SpecError("recipe", "a function of very many steps", f"at most {_MOST_STEPS}")
            self.statement(node, module, scope)

    def statement(self, node: ast.stmt, module: PythonFile, scope: dict[str, Any]) -> None:
        if isinstance(node, ast.Return):
            raise _Return(self.value(node.value, module, scope) if node.value is not None else None)
        if isinstance(node, ast.Assign):
            value = self.value(node.value, module, scope)
            for target in node.targets:
                self.assign(target, value, module, scope)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value, module, scope), module, scope)
        elif isinstance(node, ast.Expr):
            self.value(node.value, module, scope)
        elif isinstance(node, ast.If):
            test = self.value(node.test, module, scope)
            if _vague(test):
                self.notes.append(f"the condition in line {node.lineno} is not known: neither branch is taken")
            else:
                self.block(node.body if test else node.orelse, module, scope)
        elif isinstance(node, ast.ImportFrom):
            take_imports(node, module)
        elif isinstance(node, ast.With):
            self.block(node.body, module, scope)
        elif isinstance(node, (ast.For, ast.While, ast.Try)):
            self.notes.append(f"line {node.lineno} is not followed ({type(node).__name__.lower()})")

    def assign(self, target: ast.expr, value: Any, module: PythonFile, scope: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            scope[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, module, scope, make=True)
            if isinstance(owner, Made):
                owner.fields[target.attr] = value
        elif isinstance(target, ast.Tuple) and isinstance(value, (list, tuple)) and len(value) == len(target.elts):
            for one, part in zip(target.elts, value, strict=True):
                self.assign(one, part, module, scope)

    def value(self, node: ast.expr, module: PythonFile, scope: dict[str, Any], make: bool = False) -> Any:
        """What an expression comes to; with `make`, an attribute that is not there yet is created, to be assigned to."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.resolve_name(node.id, module, scope)
        if isinstance(node, ast.Attribute):
            return self.attribute(node, module, scope, make)
        if isinstance(node, ast.Call):
            return self.call(node, module, scope)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(one, module, scope) for one in node.elts]
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(self.value(k, module, scope)): self.value(v, module, scope) for k, v in pairs if k is not None}
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand, module, scope)
            if isinstance(node.op, ast.Not):
                return UNKNOWN if _vague(inner) else not inner
            return -inner if isinstance(node.op, ast.USub) and isinstance(inner, (int, float)) else UNKNOWN
        if isinstance(node, ast.BinOp):
            return self.arithmetic(node, module, scope)
        if isinstance(node, ast.BoolOp):
            return self.either(node, module, scope)
        if isinstance(node, ast.Compare):
            return self.evaluate_comparison(node, module, scope)
        if isinstance(node, ast.IfExp):
            test = self.value(node.test, module, scope)
            return UNKNOWN if _vague(test) else self.value(node.body if test else node.orelse, module, scope)
        return UNKNOWN

    def resolve_name(self, name: str, module: PythonFile, scope: dict[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        if name in module.constants:
            constant = module.constants[name]
            return self.value(constant, module, {name: UNKNOWN}) if not isinstance(constant, ast.Call) else Named(name)
        return Named(name)

    def attribute(self, node: ast.Attribute, module: PythonFile, scope: dict[str, Any], make: bool) -> Any:
        owner = self.value(node.value, module, scope, make)
        if isinstance(owner, Made):
            if node.attr not in owner.fields:
                if not make:
                    return UNKNOWN
                owner.fields[node.attr] = Made("")
            elif make and not isinstance(owner.fields[node.attr], Made):
                owner.fields[node.attr] = Made(str(owner.fields[node.attr]))
            return owner.fields[node.attr]
        return Named(f"{owner.name}.{node.attr}") if isinstance(owner, Named) else UNKNOWN

    def arithmetic(self, node: ast.BinOp, module: PythonFile, scope: dict[str, Any]) -> Any:
        left, right = self.value(node.left, module, scope), self.value(node.right, module, scope)
        action, numbers = _ARITHMETIC.get(type(node.op)), isinstance(left, (int, float)) and isinstance(right, (int, float))
        if action is None or not numbers or abs(left) > 1e15 or abs(right) > 1e15:
            return UNKNOWN
        return action(left, right) if right or not isinstance(node.op, (ast.FloorDiv, ast.Div)) else UNKNOWN

    def either(self, node: ast.BoolOp, module: PythonFile, scope: dict[str, Any]) -> Any:
        value: Any = UNKNOWN
        for one in node.values:
            value = self.value(one, module, scope)
            if _vague(value):
                return UNKNOWN
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def evaluate_comparison(self, node: ast.Compare, module: PythonFile, scope: dict[str, Any]) -> Any:
        values = [self.value(one, module, scope) for one in (node.left, *node.comparators)]
        if any(isinstance(value, Unknown) for value in values) or len(values) != 2:
            return UNKNOWN
        left, right = (value.name if isinstance(value, Named) else value for value in values)
        try:
            return bool(_COMPARED[type(node.ops[0])](left, right))
        except TypeError:
            return UNKNOWN

    def call(self, node: ast.Call, module: PythonFile, scope: dict[str, Any]) -> Any:
        args = [self.value(one, module, scope) for one in node.args if not isinstance(one, ast.Starred)]
        kwargs = {word.arg: self.value(word.value, module, scope) for word in node.keywords if word.arg is not None}
        if isinstance(node.func, ast.Name) and node.func.id not in scope:
            name = node.func.id
            if name in ("hasattr", "getattr", "isinstance"):
                return self.evaluate_attribute_test(name, args)
            if name in _NUMBERS:
                return _number(name, args)
            found = self.find(name, module) if not name.endswith(KEPT) else None
            if found is not None:
                self.followed.append(name)
                return self.call_function(*found, args, kwargs)
            if name == "replace" and args and isinstance(args[0], Made):  # of dataclasses
                return Made(args[0].name, args[0].args, {**args[0].fields, **kwargs}, args[0].home)
            result = self.call_unknown(name, args, kwargs)
            if name.endswith("model_registry") and isinstance(result, Made):
                result.home = home_of(name, module)
            return result
        target = self.value(node.func, module, scope)
        if isinstance(target, Named):
            if target.name in _VARIABLES:
                return args[1] if len(args) > 1 else None
            if target.name.endswith(STARTED):
                recipe = args[0] if target.name.endswith("run.run") and args else None  # what NeMo-Run is handed
                self.started = recipe if isinstance(recipe, Made) else Made(PARTIALS[0], args, kwargs)
                return self.started
            if target.name in NEMO_RUN and args:
                return self.make_configuration(target.name, args, kwargs, module)
            return self.call_unknown(target.name, args, kwargs)
        inner = self.value(node.func.value, module, scope) if isinstance(node.func, ast.Attribute) else UNKNOWN
        if isinstance(inner, (str, list)) and isinstance(node.func, ast.Attribute):
            return self.call_method(inner, node.func.attr, args)
        if isinstance(inner, Made) and inner.name.endswith("ArgumentParser") and isinstance(node.func, ast.Attribute):
            return _argument(inner, node.func.attr, args, kwargs)
        if isinstance(inner, Made):  # a method: what it returns stands for what it was called on
            return Made(inner.name, inner.args or args, {**inner.fields, **kwargs})
        return UNKNOWN

    def evaluate_attribute_test(self, name: str, args: list[Any]) -> Any:
        if name == "isinstance" or len(args) < 2 or not isinstance(args[0], Made) or not isinstance(args[1], str):
            return UNKNOWN
        there = args[1] in args[0].fields
        if name == "hasattr":
            return True if there else UNKNOWN
        return args[0].fields[args[1]] if there else args[2] if len(args) > 2 else UNKNOWN

    def make_configuration(self, call: str, args: list[Any], kwargs: dict[str, Any], module: PythonFile) -> Any:
        """What `run.Config(CLASS, ...)` makes, by the name of the class; `run.Partial(function, ...)` keeps its own."""
        if call in PARTIALS or not isinstance(args[0], Named):
            return Made(call, args, kwargs)
        made = Made(args[0].name, args[1:], kwargs)
        self.take_class(made.name, module, made, 0)
        return made

    def take_class(self, name: str, module: PythonFile, made: Made, depth: int) -> None:
        """Adds the bases of a class in reach and the defaults of its fields, those of its bases first."""
        found = self.find(name, module, "classes") if depth < _DEEPEST else None
        if found is None:
            return
        home, node = found
        for base in node.bases:
            if isinstance(base, ast.Name):
                made.bases.append(base.id)
                self.take_class(base.id, home, made, depth + 1)
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
                made.defaults[line.target.id] = self.value(line.value, home, {})

    def call_method(self, inner: str | list[Any], method: str, args: list[Any]) -> Any:
        """A method of a text or of a list: what recipes use of them."""
        if isinstance(inner, str):
            return inner.lower() if method == "lower" else UNKNOWN
        if method == "append" and args and len(inner) < _MOST_STEPS:
            inner.append(args[0])
        elif method == "extend" and args and isinstance(args[0], list) and len(inner) + len(args[0]) < _MOST_STEPS:
            inner.extend(args[0])
        return None if method in ("append", "extend") else UNKNOWN

    def call_unknown(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call whose function is not in reach: a helper that is given a configuration returns it, others are values."""
        short = name.rpartition(".")[2]
        self.calls.append(name)
        helps = short.lower() == short and not short.endswith("_recipe")
        if args and isinstance(args[0], Made) and helps and not kwargs.keys() - {"cfg"}:
            if len(args) > 1:
                args[0].fields[f"call:{short}"] = args[1]
            return args[0]
        return Made(name, args, kwargs)

    def find(self, name: str, module: PythonFile, kind: str = "functions") -> tuple[PythonFile, Any] | None:
        """A function (or class: `kind`) of the file, or of a file of the same tree that it imports it from."""
        for _ in range(_DEEPEST):
            known: dict[str, Any] = getattr(module, kind)
            if name in known:
                return module, known[name]
            if name not in module.imports:
                return None
            where, name = module.imports[name]
            other = self.load(where, module)
            if other is None:
                return None
            module = other
        return None

    def load(self, dotted: str, module: PythonFile) -> PythonFile | None:
        if module.path is None:
            return None
        level = len(dotted) - len(dotted.lstrip("."))
        parts = Path(*dotted.lstrip(".").split(".")) if dotted.strip(".") else Path()
        roots = [module.path.parents[level - 1]] if level else list(module.path.resolve().parents)
        for root in roots:
            for path in ((root / parts).with_suffix(".py") if parts.parts else root / "__init__.py", root / parts / "__init__.py"):
                if path in self.files:
                    return self.files[path]
                if path.is_file() and len(self.files) < _MOST_FILES:
                    self.files[path] = None  # a file that imports itself
                    text, where = read_source(path)
                    self.files[path] = module_of(text, where, path) if text.strip() else None
                    return self.files[path]
        return None
