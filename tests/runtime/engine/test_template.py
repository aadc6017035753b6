"""Chat templates: what Hugging Face's apply_chat_template gives, in a sandbox, with an end."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from turbospark_cli.errors import CorruptInstall, InvalidRequest, PayloadTooLarge
from turbospark_cli.runtime.engine.template import MAX_RENDERED, ChatTemplate
from turbospark_cli.runtime.requests import Message

_TURNS = (Message("system", "Be <brief>."), Message("user", "Hé & 'hi'"), Message("assistant", "ok"))
_SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

_WRITTEN = {
    "trimming": """
{%- for m in messages %}
    {% if m['role'] == 'user' -%}
        [U] {{ m['content'] | trim }}
    {%- elif m.role == 'system' %}
  [S] {{ m.content }}
    {% else %}
{{ bos_token }}{{ m.content }}{{ eos_token }}
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
[A]
{%- endif %}
""",
    "tools that are none": """
{%- if tools is not none %}{{ raise_exception('no tools here') }}{% endif %}
{%- if documents is not none %}{{ raise_exception('no documents here') }}{% endif %}
{%- set ns = namespace(n=0) %}
{%- for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}
{%- set ns.n = ns.n + 1 %}{{ loop.index0 }}{{ m.content }}{% if ns.n == 2 %}{% break %}{% endif %}{% endfor %}
""",
    "json": "{{ messages | tojson }}\n{{ messages[0] | tojson(indent=2) }}{{ {'b': 1, 'a': '<é>'}|tojson }}",
    "generation": """{% for m in messages %}{% if m.role == 'assistant' %}
{% generation %}
{{ m.content }}{% endgeneration %}
{% else %}{{ m.role }}: {{ m.content }}
{% endif %}{% endfor %}""",
}

# transformers costs seconds to import and warns: it renders all templates in one process of its own.
_HUGGING_FACE = """
import json, sys
from transformers.utils.chat_template_utils import render_jinja_template
job = json.load(sys.stdin)
def render(source):
    options = {"chat_template": source, "add_generation_prompt": True, **job["special"]}
    return render_jinja_template([job["messages"]], **options)[0][0]
print(json.dumps([render(source) for source in job["sources"]]))
"""


def _starters(folder: Path) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text()
    return str(json.loads((folder / "tokenizer_config.json").read_text())["chat_template"])


@pytest.mark.starter
def test_the_same_text_as_hugging_face(starter: Path) -> None:
    sources = [*_WRITTEN.values(), _starters(starter)]
    job: dict[str, Any] = {
        "messages": [{"role": m.role, "content": m.content} for m in _TURNS],
        "special": _SPECIAL,
        "sources": sources,
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _HUGGING_FACE],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
    )
    expected = json.loads(done.stdout.splitlines()[-1])
    assert [ChatTemplate(source, _SPECIAL).render(_TURNS, {}) for source in sources] == expected


def _render(source: str, **options: Any) -> str:
    return ChatTemplate(source, _SPECIAL).render(_TURNS, options)


def test_blocks_are_trimmed_on_both_sides() -> None:
    assert _render("a\n    {% if true %}\nb\n    {% endif %}\nc") == "a\nb\nc"


def test_options_reach_the_template() -> None:
    source = "{% if enable_thinking is defined and enable_thinking is false %}quiet{% endif %}"
    assert _render(source, enable_thinking=False) == "quiet"
    assert _render(source) == ""


def test_tools_and_documents_are_none_and_not_missing() -> None:
    assert _render("{{ tools is none and documents is none and tools is defined }}") == "True"


def test_json_is_not_escaped_for_html() -> None:
    assert _render("{{ messages[0].content | tojson }}") == '"Be <brief>."'
    assert _render("{{ messages[1].content | tojson }}") == "\"Hé & 'hi'\""


def test_the_date_is_the_local_one() -> None:
    before = datetime.now().astimezone()
    shown = _render("{{ strftime_now('%Y-%m-%d') }}")
    assert shown in {f"{day:%Y-%m-%d}" for day in (before, datetime.now().astimezone())}


def test_a_refusal_is_told_in_the_templates_own_words() -> None:
    source = "{{ raise_exception('Roles must alternate ' ~ messages[0].role) }}"
    with pytest.raises(InvalidRequest, match="Roles must alternate system") as caught:
        _render(source)
    assert caught.value.param == "messages"
    with pytest.raises(InvalidRequest) as caught:
        _render("{{ raise_exception('x' * 10000) }}")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[7].content }}",
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ [] | first + 1 }}",
        "{{ range(10 ** 9) | list }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ '%s'.__format__('x').__class__.__base__ }}",
        "{% include 'other' %}",
        "{% import 'other' as x %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ lipsum.__globals__['os'] }}",
    ],
)
def test_faults_and_ways_out_of_the_sandbox_are_one_clear_refusal(source: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot render this conversation") as caught:
        _render(source)
    assert caught.value.param == "messages"


@pytest.mark.parametrize("source", ["{{ raise_exception.__globals__ }}", "{{ (1).__class__ }}"])
def test_what_the_sandbox_hides_is_not_there(source: str) -> None:
    assert _render(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% for a in range(99) %}{{ 'x' * 99999 }}{% endfor %}",
    ],
)
def test_runaway_output_is_cut(source: str) -> None:
    with pytest.raises(PayloadTooLarge):
        _render(source)


def test_a_long_conversation_is_not_runaway_output() -> None:
    long = Message("user", "x" * (MAX_RENDERED - 10))
    assert len(ChatTemplate("{{ messages[0].content }}", {}).render((long,), {})) == MAX_RENDERED - 10


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ x", "{% endfor %}", "{{ x | nosuchfilter }}", "{% foo %}"]
)
def test_a_template_that_does_not_compile_is_a_corrupt_install(source: str) -> None:
    with pytest.raises(CorruptInstall, match="does not compile"):
        ChatTemplate(source, {})


def test_an_option_cannot_take_the_place_of_the_messages() -> None:
    with pytest.raises(InvalidRequest):
        _render("{{ messages }}", messages=1)
