"""`%%kernelmate` judges the kernel of a cell and binds it; `%kernelmate` has the commands on bound kernels."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import DisplayHandle
from IPython.utils.process import arg_split

from kernelmate.errors import UsageError
from kernelmate.records import Contract, Kernel, Optimization, Verdict
from kernelmate.report.excerpt import sources_of
from kernelmate.source import contract_for
from kernelmate_widgets import commands
from kernelmate_widgets.cell_search import offer_repair, repair
from kernelmate_widgets.cell_writing import CellWriter, cell_of, cell_text, running_cell
from kernelmate_widgets.cells import MAGIC, cell_unit, chosen_kernel, is_name, notebook_name, short_name
from kernelmate_widgets.error_display import KernelFailed, reports_errors
from kernelmate_widgets.handle import KernelHandle, KernelVersion, reason_not_to_take
from kernelmate_widgets.live_contracts import LineArguments, live_contract
from kernelmate_widgets.notebook_kernels import KernelOffers
from kernelmate_widgets.notebook_state import BoundKernel, MagicResult, NotebookState
from kernelmate_widgets.output import optimization_bundle, verdict_bundle
from kernelmate_widgets.progress import CellProgress
from kernelmate_widgets.searches import SearchArguments

_FAILED = "!"
"""Prefix of keys for the copies of a rejected kernel; no Python name begins with it."""


@magics_class
class KernelmateMagics(Magics):
    """The two magics and the state of the notebook."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.notebook = NotebookState()
        self.cells = CellWriter(shell)
        self.offers = KernelOffers(self)

    @no_var_expand
    @magic_arguments("%kernelmate")
    @argument("name", nargs="?", help="The name to bind the kernel to; by default its own.")
    @argument("--args", help="Live arrays and scalars in the kernel's order, as in --args x,y,n.")
    @argument("--grid", help="Blocks: a number, up to three with commas, or an expression such as cdiv(n,block).")
    @argument("--block", help="Threads of a block: a number, or up to three with commas.")
    @argument("--shared", help="Dynamic shared memory of a block in bytes: a number or an expression.")
    @argument("--ref", help="A Python function of this notebook that returns what the kernel must compute.")
    @argument("--target", help="The GPU that figures are for, as in H100 or sm_90.")
    @argument("--backend", choices=["auto", "cuda", "emulator"], help="The backend that runs the kernel.")
    @argument("--seed", type=int, help="Seed of the inputs; drawn and reported if not given.")
    @argument(
        "--against",
        action="append",
        choices=["torch", "compile", "cublas"],
        help="Time the same computation by this library beside the kernel (GPU); repeatable.",
    )
    @argument("--prompt", help="Ask for a better version once the kernel is judged, as in --prompt 'make it faster'.")
    @argument("-p", "--panel", action="store_true", help="Show the panel for prompts and candidates.")
    @argument("--replace", action="store_true", help="Bind NAME even if it is something other than a kernel.")
    @argument("-q", "--quiet", action="store_true", help="Show nothing unless the kernel fails.")
    @argument("-o", "--output", action="store_true", help="Return the result.")
    @argument("-v", "--variable", metavar="VAR", help="Keep the result in this variable.")
    @cell_magic("kernelmate")
    @reports_errors
    def judge(self, line: str, cell: str) -> MagicResult | None:
        """Judge the CUDA kernel of this cell, and bind it.

        It is judged with the live objects that the line names, else by the contract block above the kernel. A kernel
        that is not good raises, so that "Run All" stops, and leaves what NAME was before.
        """
        options = self.judge.parser.parse_intermixed_args(arg_split(line, posix=True))
        unit = cell_unit(cell, self._raw_cell(), notebook_name())
        kernel = chosen_kernel(unit, options.name)
        name = options.name or short_name(kernel)
        self._check_names(name, options)
        chosen = {
            key: getattr(options, key) for key in ("target", "backend", "seed") if getattr(options, key) is not None
        }
        chosen |= {"against": tuple(options.against)} if options.against else {}
        wanted = LineArguments(options.args, options.grid, options.block, options.shared, options.ref)
        folder = self.notebook.folder() if wanted.anything else None
        try:
            with self.progress(quiet=options.quiet) as progress:  # large arrays take a while to copy
                contract = None if folder is None else live_contract(kernel, wanted, self.shell.ev, folder)
                verdicts = self.judged(kernel, contract, chosen, progress)
            text, place = self._raw_cell() or f"{MAGIC} {line}\n{cell}", running_cell(self.shell)
            bad = next((verdict for verdict in verdicts if verdict.accepted is False), None)
            if bad is not None:
                failed = BoundKernel(kernel, contract, bad, chosen, line, text, place)
                self.fail(name, failed, folder, prompt=options.prompt, quiet=options.quiet)
            handle = self.bind(name, BoundKernel(kernel, contract, verdicts[0], chosen, line, text, place))
        except KernelFailed:
            raise  # its copies stay, for a repair
        except BaseException:
            self.notebook.drop(folder)
            raise
        self.notebook.keep(name, folder)
        result = MagicResult(verdicts)
        if options.prompt is not None:
            found = commands.run_prompt(self, name, handle, options.prompt, SearchArguments(quiet=options.quiet))
            result = MagicResult(verdicts, found)
        if options.panel:
            commands.panel(self, name)
        return self.give(result, options)

    @no_var_expand
    @magic_arguments("kernelmate")
    @argument("command", nargs="?", help=f"One of {', '.join(commands.COMMANDS)}.")
    @argument(
        "words", nargs="*", help='Arguments of the command: optimize NAME "PROMPT", accept NAME [NUMBER], compare A B.'
    )
    @argument(
        "--author",
        default="auto",
        help="The suggester: auto, synthesis, recipes, local, claude, or a package's suggester.",
    )
    @argument("--max-candidates", type=int, default=32, help="Judge at most this many candidates.")
    @argument(
        "--budget", type=float, metavar="SECONDS", help="End within this time; work that would not fit is not started."
    )
    @argument("--samples", type=int, help="Answers of the local model per round.")
    @argument("--rounds", type=int, default=1, help="Rounds of requests to the local model.")
    @argument(
        "--objective", help="The metric that the prompt means, if it was misread: time, shared_bytes, registers, ..."
    )
    @argument("--grid", help="Of judge: blocks, as of %%%%kernelmate.")
    @argument("--block", help="Of judge: threads of a block.")
    @argument("--shared", help="Of judge: dynamic shared memory of a block in bytes.")
    @argument("--ref", "--reference", help="Of judge: a Python function that returns what the kernel must compute.")
    @argument("--target", help="Of judge: the GPU that figures are for.")
    @argument("--backend", choices=["auto", "cuda", "emulator"], help="Of judge: the backend that runs the kernel.")
    @argument("--seed", type=int, help="Of judge: seed of the inputs.")
    @argument("--bind", metavar="NEW", help="Of judge: bind the kernel to this name, so that it can be asked about.")
    @argument("-h", "--help", action="store_true", help="Show the purpose and the options of the command.")
    @argument("-q", "--quiet", action="store_true", help="Show nothing.")
    @argument("-o", "--output", action="store_true", help="Return the result.")
    @argument("-v", "--variable", metavar="VAR", help="Keep the result in this variable.")
    @line_magic("kernelmate")
    @reports_errors
    def command(self, line: str) -> Any:
        """Run a command on kernels that %%kernelmate has bound.

        %kernelmate write softmax_rows(x)
        %kernelmate judge raw_scale x y n --grid 64 --block 256 --reference f
        %kernelmate optimize softmax "reduce memory usage"
        %kernelmate fix softmax
        %kernelmate accept softmax 2
        %kernelmate undo softmax
        %kernelmate compare softmax:1 softmax:2
        %kernelmate explain softmax
        %kernelmate panel softmax
        %kernelmate history softmax
        %kernelmate config target=L4 backend=emulator
        %kernelmate doctor
        """
        options = self.command.parser.parse_intermixed_args(arg_split(line, posix=True))
        return commands.run(self, options)

    def judged(
        self, kernel: Kernel, contract: Contract | None, options: Mapping[str, Any], progress: CellProgress,
        more: tuple[str, ...] = (),
    ) -> tuple[Verdict, ...]:  # fmt: skip
        """Judges a kernel, shows the verdicts with further remarks, and returns them."""
        session = self.notebook.session(options)
        with self.notebook.listening(progress.stage):
            verdicts = session.bench(kernel, contract=contract)
        if not progress.quiet:
            remarks = (*session.notices, *_guessed(kernel, contract), *more)
            progress.first(verdict_bundle(verdicts, kernel, remarks, charts=False))  # drawing charts takes a while
            progress.result(verdict_bundle(verdicts, kernel, remarks))
        return verdicts

    def fail(
        self, name: str, failed: BoundKernel, folder: Path | None, *, prompt: str | None = None, quiet: bool
    ) -> NoReturn:
        """Stores a rejected kernel, offers to repair it or, with a prompt, repairs it, and raises.

        Raises:
            KernelFailed: always.
        """
        self.notebook.keep(_FAILED + name, folder)  # beside those of what the name is bound to
        self.notebook.failed[name] = failed
        repairable = not failed.kernel.parts  # repairs change one kernel
        if prompt is not None:
            repair(self, name, failed, quiet=quiet)
        elif not quiet and repairable:
            offer_repair(self, name, failed)
        shown = not quiet and hasattr(self.shell, "kernel")
        remark = self._unchanged(name, failed.kernel)
        raise KernelFailed(failed.verdict, sources_of(failed.kernel), remark, shown=shown, repairable=repairable)

    # ----------------------------------------------------------------------------------------------- for commands

    def progress(self, *, quiet: bool, place: DisplayHandle | None = None) -> CellProgress:
        """Returns the progress display for the running cell's output, or for an existing output."""
        return CellProgress(quiet=quiet, live=hasattr(self.shell, "kernel"), place=place)

    def show_optimizations(self) -> None:
        """Registers the output of search results with the shell."""
        formatter = getattr(self.shell, "display_formatter", None)
        if formatter is not None:
            formatter.mimebundle_formatter.for_type(Optimization, self._optimization_bundle)

    def _optimization_bundle(self, found: Optimization, include: Any = None, exclude: Any = None) -> Any:
        """Returns the output of a search result of this notebook; None for another, which is shown as text."""
        del include, exclude
        handles = [one for one in self.shell.user_ns.values() if isinstance(one, KernelHandle)]
        handle = next((one for one in handles if one.optimization is found), None)
        return None if handle is None else optimization_bundle(found, handle.searched.kernel)

    def write_cell(self, name: str, handle: KernelHandle, *, running: bool = True) -> list[str]:
        """Writes the version in force where the setting `accept_into` says; returns sentences for the user."""
        known = self.notebook.known[name]
        text = cell_of(known, handle, handle.version)
        said = self.cells.write(known.cell_id, text, self.notebook.settings().accept_into, running=running)
        return [said] if said else []

    def adopt(
        self, name: str, failed: BoundKernel, found: Optimization, number: int, *, running: bool = True
    ) -> list[str]:
        """Bind a repaired kernel and write it into its cell; returns sentences for the user.

        Raises:
            UsageError: there is no such repair, or it cannot be accepted.
        """
        if not 1 <= number <= len(found.candidates):
            raise UsageError(f"There is no repair {number} of {name}.", hint=f"There are {len(found.candidates)}.")
        judged = found.candidates[number - 1]
        why_not = reason_not_to_take(judged)
        if why_not is not None:
            raise UsageError(f"Repair {number} of {name} cannot be accepted: {why_not}.", hint="Choose another.")
        candidate, live = judged.candidate, failed.contract is not None
        before = failed.contract if failed.contract is not None else contract_for(failed.kernel)
        text = cell_text(failed, KernelVersion(candidate.kernel, candidate.contract, judged.verdict), before)
        contract = candidate.contract if live else None
        self.notebook.keep_as(_FAILED + name, name)
        self.bind(name, replace(failed, kernel=candidate.kernel, contract=contract, verdict=judged.verdict, cell=text))
        said = self.cells.write(failed.cell_id, text, self.notebook.settings().accept_into, running=running)
        return [f"{name} is bound to the repaired kernel.", *([said] if said else [])]

    def give(self, result: MagicResult, options: argparse.Namespace) -> MagicResult | None:
        """Returns the result if `-o` is given, and stores it in the variable that `-v` names."""
        if options.variable is not None:
            if not is_name(options.variable):
                raise UsageError(
                    f"-v {options.variable} is not a valid Python name.", hint="Give the name of a variable."
                )
            self.shell.push({options.variable: result})
        return result if options.output else None

    # ---------------------------------------------------------------------------------------------------- binding

    def _raw_cell(self) -> str | None:
        """Returns the running cell as typed; None without a history."""
        history = getattr(self.shell, "history_manager", None)
        raw = history.input_hist_raw if history is not None else []
        return raw[-1] if raw else None

    def _check_names(self, name: str, options: argparse.Namespace) -> None:
        """Checks the names to bind before anything is judged.

        Raises:
            UsageError: a name is invalid, or would overwrite something else.
        """
        self.check_name(name, replace=options.replace)
        if options.variable is not None and not is_name(options.variable):
            raise UsageError(f"-v {options.variable} is not a valid Python name.", hint="Give the name of a variable.")

    def check_name(self, name: str, *, replace: bool = False) -> None:
        """Check that a kernel can be bound under a name.

        Raises:
            UsageError: the name is invalid, or is bound to something else that may not be replaced.
        """
        if not is_name(name):
            raise UsageError(f"{name!r} is not a valid Python name.", hint="Give another: %%kernelmate NAME.")
        held = self.shell.user_ns.get(name)
        if held is not None and not isinstance(held, KernelHandle) and not replace:
            raise UsageError(
                f"{name} is a {type(held).__name__} in this notebook, not a kernel.",
                hint="Give the kernel another name (%%kernelmate NAME), or replace the value with --replace.",
            )

    def _unchanged(self, name: str, kernel: Kernel) -> str:
        """Returns a sentence on what the name of a rejected kernel is bound to."""
        named = name if name == short_name(kernel) else f"{name}, the name for {short_name(kernel)},"
        held = isinstance(self.shell.user_ns.get(name), KernelHandle)
        return f"{named} {'stays what it was before this cell' if held else 'is not bound'}."

    def bind(self, name: str, known: BoundKernel) -> KernelHandle:
        """Binds a judged kernel; a kernel already bound to the name gets this version."""
        session = self.notebook.session(known.options)
        contract = known.contract if known.contract is not None else contract_for(known.kernel)
        version = KernelVersion(known.kernel, contract, known.verdict)
        prepare = self.notebook.preparer(session)
        held = self.shell.user_ns.get(name)
        if isinstance(held, KernelHandle):
            held.rebase(version, session.backend, prepare)
        else:
            held = KernelHandle(name, session.backend, version, prepare)
            self.shell.push({name: held})
        self.notebook.known[name] = known
        self.notebook.failed.pop(name, None)
        return held


def _guessed(kernel: Kernel, contract: Contract | None) -> tuple[str, ...]:
    """Returns a remark if the contract was inferred."""
    if contract is not None or not contract_for(kernel).inferred:
        return ()
    return ("judged with a guessed contract: write one above the kernel, or name live arrays with --args",)
