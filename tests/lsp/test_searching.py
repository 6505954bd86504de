"""Benchmarks, comparisons, repairs and searches from the editor."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from lsprotocol import types

from tests.launched import LAUNCHER, ROWS
from tests.lsp.client import SCALE, STORE_LINE, editor, run, until

pytestmark = pytest.mark.exhaustive(share=0.4)


def test_a_prompt_leads_to_an_edit_that_must_be_confirmed_and_says_what_the_verdict_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            text = (Path(__file__).parents[2] / "examples" / "softmax.cu").read_text()
            (tmp_path / "reference.py").write_text(
                (Path(__file__).parents[2] / "examples" / "reference.py").read_text()
            )
            uri = it.open(tmp_path / "softmax.cu", text)
            await it.problems(uri)
            document = await it.command(
                "kernelmate.optimize", uri=uri, kernel="softmax", prompt="reduce memory usage", author="recipes"
            )
            assert document["objective"]["metric"] == "shared_bytes"
            best = document["candidates"][document["best"]]
            (asked,) = it.applied
            (annotation,) = (asked.edit.change_annotations or {}).values()
            assert annotation.needs_confirmation
            assert best["author"] in annotation.label
            assert "right at" in (annotation.description or "")
            changed = it.after(asked.edit, uri)
            assert best["source"] in changed
            assert [one["kind"] for one in it.progress][:1] == ["begin"]
            assert [one["kind"] for one in it.progress][-1:] == ["end"]
            # What is known, and its charts, are the search's; the benchmark of its baseline is no newer.
            known = await it.command("kernelmate.results", uri=uri, kernel="softmax")
            assert known["search"]["at"] >= known["benchmark"]["at"]
            page = await it.command("kernelmate.view", uri=uri, kernel="softmax")
            assert (page["judged"]["of"], page["judged"]["stale"], page["judged"]["taken"]) == ("search", False, None)
            assert best["author"].removeprefix("recipe:") in json.dumps(page["figures"]["Correctness per size"])
            # The candidates can be taken from the menu too, each with its edit made when it is chosen.
            offered = [one for one in await it.actions(uri, 20) if one.title.startswith("Take candidate 1")]
            (first,) = offered
            assert first.edit is None
            resolved = await it.client.code_action_resolve_async(first)
            assert resolved.edit is not None
            assert it.after(resolved.edit, uri) == changed
            # Once the text is another one, they cannot.
            it.change(uri, text.replace("float", "float ", 1))
            await it.problems(uri)
            assert not [one for one in await it.actions(uri, 20) if one.title.startswith("Take candidate")]
            refused = await it.command("kernelmate.apply", uri=uri, kernel="softmax", candidate=0)
            assert refused["error"]["code"] == "usage"

    run(scenario())


def test_a_rewrite_is_judged_when_it_is_chosen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            kinds: list[str] = []
            for _ in range(200):
                offered = await it.actions(uri, STORE_LINE)
                kinds = [str(one.kind) for one in offered]
                if "refactor.rewrite.kernelmate.restrict-pointers" in kinds:
                    break
                await asyncio.sleep(0.05)
            chosen = offered[kinds.index("refactor.rewrite.kernelmate.restrict-pointers")]
            assert chosen.edit is None
            resolved = await it.client.code_action_resolve_async(chosen)
            assert resolved.edit is not None
            assert "__restrict__" in it.after(resolved.edit, uri)
            (annotation,) = (resolved.edit.change_annotations or {}).values()
            assert "right at" in (annotation.description or "")

    run(scenario())


def test_a_search_can_be_cancelled_and_the_next_one_works(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            searching = asyncio.ensure_future(it.command("kernelmate.optimize", uri=uri, prompt="make it faster"))
            token = await asyncio.wait_for(it.begun.get(), 60)
            await until(lambda: any(one["kind"] == "report" for one in it.progress), "a report of progress")
            it.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
            assert await asyncio.wait_for(searching, 60) is None
            document = await it.command("kernelmate.benchmark", uri=uri)
            assert document["verdicts"][0]["correct"] is True

    run(scenario())


@pytest.mark.parametrize("benchmarked", [True, False])
def test_a_cancelled_search_keeps_what_it_has_judged(tmp_path: Path, benchmarked: bool) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            if benchmarked:
                await it.command("kernelmate.benchmark", uri=uri)
                await it.begun.get()
            searching = asyncio.ensure_future(it.command("kernelmate.optimize", uri=uri, prompt="make it faster"))
            token = await it.begun.get()
            told = "a judged candidate"
            await until(lambda: any(str(one.get("message")).startswith("candidate 1") for one in it.progress), told)
            it.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
            document = await searching
            assert document["candidates"]
            assert document["stopped"].startswith(f"scale: stopped: {len(document['candidates'])} judged")
            assert it.applied == [], "what was stopped is not proposed"
            known = await it.command("kernelmate.results", uri=uri)
            assert len(known["search"]["candidates"]) == len(document["candidates"])

    run(scenario())


def test_progress_is_told_before_the_reference_of_a_large_array_was_evaluated(tmp_path: Path) -> None:
    heavy = SCALE.replace("n = 4096", "n = 16777216").replace(
        'reference = "a * x"', 'reference = "reference.py:endless"'
    )
    assert "endless" in heavy
    assert "16777216" in heavy

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            (tmp_path / "reference.py").write_text(
                "import time\n\n\ndef endless(x, a):\n    while True:\n        time.sleep(0.1)\n"
            )
            uri = it.open(tmp_path / "scale.cu", heavy)
            await it.problems(uri)
            searching = asyncio.ensure_future(it.command("kernelmate.optimize", uri=uri, prompt="make it faster"))
            token = await it.begun.get()
            await until(lambda: any(one["kind"] == "report" for one in it.progress), "a report of progress")
            assert not searching.done()
            it.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token))
            assert await searching is None

    run(scenario())


def test_a_prompt_is_a_follow_up_a_question_a_choice_or_refused_with_what_to_ask(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            answer = await it.command("kernelmate.optimize", uri=uri, prompt="why is it slow?", propose=False)
            assert answer["explained"][0]["causes"]
            assert "what to do" in answer["text"]
            counted = await it.command("kernelmate.optimize", uri=uri, prompt="how many registers?", propose=False)
            assert counted["text"].startswith("It uses ")
            assert counted["explained"][0]["answers"][0].endswith(" registers per thread.")
            early = await it.command("kernelmate.optimize", uri=uri, prompt="take it")
            assert early["error"]["code"] == "usage"
            asked = {"uri": uri, "author": "recipes", "maxCandidates": 1, "propose": False}
            await it.command("kernelmate.optimize", prompt="fewer registers", **asked)
            document = await it.command("kernelmate.optimize", prompt="but keep it deterministic", **asked)
            assert document["objective"]["metric"] == "registers"
            assert "the same bits in every run" in document["objective"]["reading"]
            for prompt, said in (("undo", "Ctrl+Z"), ("asdf", 'Ask for example "make it faster"')):
                refused = await it.command("kernelmate.optimize", uri=uri, prompt=prompt)
                assert said in refused["error"]["hint"]

    run(scenario())


def test_while_a_benchmark_runs_other_requests_are_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            running = asyncio.ensure_future(it.command("kernelmate.optimize", uri=uri, prompt="make it faster"))
            answered = 0
            while not running.done():
                assert await it.lenses(uri)
                answered += 1
                await asyncio.sleep(0.02)
            assert answered > 5
            assert (await running)["baseline"]["correct"] is True

    run(scenario())


def test_a_kernel_is_compared_with_the_text_that_was_pinned_and_with_the_saved_one(tmp_path: Path) -> None:
    (tmp_path / "scale.cu").write_text(SCALE)

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            missing = await it.command("kernelmate.compare", uri=uri, baseline="pinned")
            assert "No version" in missing["error"]["message"]
            await it.command("kernelmate.pin", uri=uri)
            it.change(uri, SCALE.replace("a * x[i]", "a * x[i] + 1"))
            await it.problems(uri)
            document = await it.command("kernelmate.compare", uri=uri)
            assert document["of"] == "pinned"
            assert document["baseline"][0]["correct"] is True
            assert document["verdicts"][0]["correct"] is False
            assert (await it.lenses(uri))[-1].startswith("WRONG"), "a narrow editor cuts off the end"
            page = await it.command("kernelmate.view", uri=uri)
            assert "Correctness per size" in page["figures"]
            assert set(page["templates"]) == {"light", "dark"}
            assert page["judged"]["good"] is False
            assert "sizes are wrong" in page["html"]
            assert "baseline (pinned)" in page["html"]
            assert "y[i] = a * x[i] + 1" in page["html"], "the line that stores the wrong values"
            saved = await it.command("kernelmate.compare", uri=uri, baseline="saved")
            assert saved["of"] == "saved"
            assert saved["baseline"][0]["binary"] == document["baseline"][0]["binary"]

    run(scenario())


def test_a_kernel_is_compared_with_the_committed_text_and_git_runs_nothing_of_the_repository(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "scale.cu").write_text(SCALE)
    git("add", ".")
    git("commit", "-qm", "first")
    marker = tmp_path / "was_run"
    git("config", "core.fsmonitor", f"touch {marker}; false")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE.replace("a * x[i]", "x[i] * a"))
            await it.problems(uri)
            document = await it.command("kernelmate.compare", uri=uri, baseline="HEAD")
            assert document["of"] == "HEAD"
            assert document["verdicts"][0]["correct"] is True
            other = it.open(tmp_path / "new.cu", SCALE)
            await it.problems(other)
            absent = await it.command("kernelmate.compare", uri=other, baseline="HEAD")
            assert "not in the last commit" in absent["error"]["message"]
            assert not marker.exists()

    run(scenario())


def test_a_kernel_that_does_not_compile_is_repaired_by_the_quick_fix(tmp_path: Path) -> None:
    text = SCALE.replace("blockDim.x + threadIdx.x;", "blockDim.x + threadIdx.x")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            problems = await it.problems(uri)
            fixes = [
                one for one in await it.actions(uri, STORE_LINE, problems) if one.title.startswith("KernelMate: Fix")
            ]
            (offered,) = fixes
            assert offered.kind == "quickfix"
            assert offered.command is not None
            assert offered.command.arguments is not None
            document = await it.command(offered.command.command, **offered.command.arguments[0])
            assert document["candidates"][document["best"]]["verdict"]["correct"] is True
            (asked,) = it.applied
            it.change(uri, it.after(asked.edit, uri))
            assert await it.problems(uri) == []

    run(scenario())


def test_saving_judges_what_changed_where_the_settings_ask_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path, settings={"benchmarkOnSave": True}) as it:
            uri = it.open(tmp_path / "scale.cu", SCALE)
            await it.problems(uri)
            saved = types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri))
            it.client.text_document_did_save(saved)
            await until(lambda: any(one["kind"] == "end" for one in it.progress), "the benchmark's end")
            assert "predicted" in (await it.lenses(uri))[-1]
            before = len(it.progress)
            it.client.text_document_did_save(saved)
            await it.command("kernelmate.results", uri=uri)
            await asyncio.sleep(0.3)
            assert len(it.progress) == before

    run(scenario())


def test_launches_in_other_documents_and_files_change_with_a_candidate(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "rows.cu").write_text(ROWS)
    (tmp_path / "saved.cu").write_text(LAUNCHER)
    (tmp_path / "opened.cu").write_text(LAUNCHER)
    unsaved = "// not saved\n" + LAUNCHER

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            opened = it.open(tmp_path / "opened.cu", unsaved)
            uri = it.open(tmp_path / "rows.cu", ROWS)
            await it.problems(uri)
            document = await it.command(
                "kernelmate.optimize", uri=uri, kernel="row_sum", prompt="one warp per row", author="synthesis"
            )
            best = document["candidates"][document["best"]]
            assert {Path(one["path"]).name for one in best["other_files"]} == {"saved.cu", "opened.cu"}
            (asked,) = it.applied
            (annotation,) = (asked.edit.change_annotations or {}).values()
            first, _, why = (annotation.description or "").partition("\n")
            assert first.endswith("changes launches in opened.cu and saved.cu too")
            assert why
            own, *others = asked.edit.document_changes or []
            assert own.text_document.uri == uri
            texts = {opened: (unsaved, 1), (tmp_path / "saved.cu").as_uri(): (LAUNCHER, None)}
            assert {one.text_document.uri: one.text_document.version for one in others} == {
                name: version for name, (_, version) in texts.items()
            }
            for one in others:
                it.texts[one.text_document.uri] = texts[one.text_document.uri][0]
                it.versions[one.text_document.uri] = one.text_document.version
                after = it.after(types.WorkspaceEdit(document_changes=[one]), one.text_document.uri)
                assert "<<<(n + 127) / 128, 128>>>" not in after
                assert "row_sum<<<" in after
                assert after.startswith("// not saved\n") == (one.text_document.uri == opened)

    run(scenario())
