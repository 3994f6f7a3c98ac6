// The shim's chat templates beside llama.cpp's own: the same prompts, parsers and grammars, also once something is
// remembered of a template, and the same values for each thing that a template can say.

#include "template_test.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "causerie.h"
#include "chat.h"
#include "json.h"

namespace {

const std::string refused = "(refused)";

common_json call(const char * id, const char * city) {
    return {{"id", id},
            {"type", "function"},
            {"function", {{"name", "weather"}, {"arguments", std::string(R"({"city": ")") + city + R"("})"}}}};
}

common_json said(const char * role, const char * content) { return {{"role", role}, {"content", content}}; }

common_json of_tool(const char * id, const char * content) {
    common_json message = said("tool", content);
    message["tool_call_id"] = id;
    message["name"] = "weather";
    return message;
}

common_json calling(std::vector<common_json> calls, const char * content = "", const char * thinking = "") {
    common_json message = said("assistant", content);
    message["reasoning_content"] = thinking;
    message["tool_calls"] = common_json::array();
    for (auto & one : calls) {
        message["tool_calls"].push_back(one);
    }
    return message;
}

common_json list(std::vector<common_json> messages) {
    common_json all = common_json::array();
    for (auto & message : messages) {
        all.push_back(message);
    }
    return all;
}

// With several calls in a turn, answered in any order, and thinking throughout.
common_json long_history(bool waits_for_answer) {
    std::vector<common_json> all = {said("system", "Be brief.")};
    for (int i = 0; i < 8; ++i) {
        const std::string first = "call0" + std::to_string(1000 + 2 * i);
        const std::string second = "call0" + std::to_string(1001 + 2 * i);
        auto thought = said("assistant", "It is as it was before.\n");
        thought["reasoning_content"] = i % 2 == 0 ? "Hm, \"is\" it?" : "";
        all.push_back(said("user", "And <what> about this one, then?"));
        all.push_back(calling({call(first.c_str(), "Oslo"), call(second.c_str(), "Rome & Paris")}, i % 3 == 0 ? "Let me see." : "", "Two."));
        all.push_back(of_tool((i % 4 == 0 ? second : first).c_str(), "5 C"));
        all.push_back(of_tool((i % 4 == 0 ? first : second).c_str(), R"({"c": 20, "sky": ["blue", null]})"));
        all.push_back(thought);
        all.push_back(said("user", "So?"));
        all.push_back(calling({call(first.c_str(), "Oslo")}));
        all.push_back(of_tool(first.c_str(), "noted"));
        if (i < 7 || !waits_for_answer) {
            all.push_back(said("assistant", "So."));
        }
    }
    if (!waits_for_answer) {
        all.push_back(said("user", "?"));
    }
    return list(all);
}

std::vector<common_json> histories() {
    const auto asked = said("user", "Is it <warm> in Oslo?\n\n");
    auto thought = said("assistant", "So it is.");
    thought["reasoning_content"] = "Hm, is it?";
    const auto first = call("call00001", "Oslo");
    const auto second = call("call00002", "Rome");
    return {
        list({asked}),
        list({said("system", " Be brief. "), asked}),
        list({asked, thought, said("user", "And now?")}),
        list({said("system", "Be brief."), asked, calling({first}), of_tool("call00001", "5 C")}),
        list({asked, calling({first, second}, "Let me see.", "Two places."), of_tool("call00001", "5 C"),
              of_tool("call00002", R"({"c": 20})"), said("assistant", "Rome is."), said("user", "Thanks.")}),
        list({asked, said("assistant", "Yes."), said("user", "Why?"), said("assistant", "It is summer."), said("user", "Ah.")}),
        list({asked, said("assistant", "Yes.")}),
        long_history(false),
        long_history(true),
    };
}

// All options, as texts, in which the messages of a history are put.
std::vector<common_json> options() {
    const common_json tools = list({{{"type", "function"},
                                     {"function",
                                      {{"name", "weather"},
                                       {"description", "Tells the weather"},
                                       {"parameters",
                                        {{"type", "object"},
                                         {"properties", {{"city", {{"type", "string"}}}}},
                                         {"required", common_json::array({"city"})}}}}}}});
    return {
        {{"reasoning_format", "auto"}},
        {{"tools", tools}, {"reasoning_format", "auto"}},
        {{"tools", tools}, {"tool_choice", "required"}, {"parallel_tool_calls", true}, {"reasoning_format", "auto"}},
        {{"reasoning_format", "auto"}, {"enable_thinking", false}},
        {{"reasoning_format", "auto"}, {"add_generation_prompt", false}},
    };
}

common_chat_templates_inputs read(const common_json & json) {
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(json.at("messages"));
    if (json.contains("tools")) {
        inputs.tools = common_chat_tools_parse_oaicompat(json.at("tools"));
    }
    inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(json.value("tool_choice", "auto"));
    inputs.parallel_tool_calls = json.value("parallel_tool_calls", false);
    inputs.add_generation_prompt = json.value("add_generation_prompt", true);
    inputs.enable_thinking = json.value("enable_thinking", true);
    inputs.reasoning_format = common_reasoning_format_from_name(json.value("reasoning_format", "none"));
    return inputs;
}

std::string of_llama_cpp(const common_chat_templates * templates, const common_json & json) {
    try {
        const auto params = common_chat_templates_apply(templates, read(json));
        return params.prompt + "\1" + params.generation_prompt + "\1" + params.parser + "\1" + params.grammar;
    } catch (const std::exception &) {
        return refused;
    }
}

std::string of_shim(const causerie_template * tmpl, const common_json & json) {
    char * text = causerie_template_apply(tmpl, json.dump().c_str());
    if (text == nullptr) {
        return refused;
    }
    const auto found = common_json::parse(text);
    causerie_string_free(text);
    const auto field = [&](const char * name) { return found.at(name).get<std::string>(); };
    return field("prompt") + "\1" + field("generation_prompt") + "\1" + field("parser") + "\1" + field("grammar");
}

void expect_same(const std::string & name, const common_json & json, const std::string & a, const std::string & b) {
    if (a != b) {
        std::fprintf(stderr, "%s with %s\n--- llama.cpp\n%s\n--- causerie\n%s\n", name.c_str(), json.dump().c_str(), a.c_str(), b.c_str());
        std::exit(1);
    }
}

int compare(const std::string & name, const std::string & source, const std::vector<common_json> & all, const std::vector<common_json> & ways) {
    common_chat_templates_ptr plain;
    try {
        plain = common_chat_templates_init(nullptr, source, "<s>", "</s>");
    } catch (const std::exception &) {
    }
    causerie_template * own = causerie_template_new(source.c_str(), "<s>", "</s>");
    int compared = 0;
    for (auto option : ways) {
        std::vector<std::string> expected;
        for (const auto & history : all) {
            option["messages"] = history;
            expected.push_back(plain == nullptr ? refused : of_llama_cpp(plain.get(), option));
        }
        for (size_t i = 0; i < all.size(); ++i) {  // behind the first, something is remembered
            option["messages"] = all[i];
            expect_same(name, option, expected[i], own == nullptr ? refused : of_shim(own, option));
            ++compared;
        }
    }
    causerie_template_free(own);
    return compared;
}

std::string content_of(const std::filesystem::path & path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

const std::vector<std::string> sayings = {
    // loops
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem.role }}{{ loop.nextitem.role }};{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.length }}{{ m.content }}{% else %}none{% endfor %}",
    "{% for m in [] %}x{% else %}none{% endfor %}{% for m in missing %}x{% else %}none{% endfor %}",
    "{% for m in 5 %}x{% endfor %}",
    "{% for m in 'text' %}x{% endfor %}",
    "{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ k }}={{ v }}{{ loop.index }}{% endfor %}",
    "{% for k in {'a': 1, 'b': 2} %}{{ k }}{{ loop.nextitem }}{% endfor %}{% for k, v in {'a': 1} %}{{ k }}{{ v }}{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{{ loop.last }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for a, b, c in [(1, 2)] %}{{ a }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] if a > 1 %}{{ a }}{{ b }}{{ loop.length }}{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in range(3) %}{% continue %}{% else %}none{% endfor %}",
    "{% for i in range(3) %}{% break %}{% else %}none{% endfor %}",
    "{% set x = 1 %}{% for i in range(3) %}{{ x }}{% set x = i + 10 %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in range(2) %}{{ i }}{% endfor %}{{ i }}{{ loop }}{{ loop is defined }}",
    "{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in range(2) %}{% for j in range(loop.index) if loop.index > 1 %}{{ i }}{{ j }}{% endfor %}{% endfor %}",
    "{% for loop in [1, 2] %}{{ loop }}{% endfor %}{% for i in [1] %}{% set loop = 'x' %}{{ loop }}{% endfor %}",
    "{% set l = [1, 2] %}{% for i in l %}{% set _ = l.append(3) %}{{ i }}{% endfor %}{{ l }}",
    "{% set l = [[1, 2]] %}{% for a, b in l %}{% set _ = l[0].pop() %}{{ a }}{{ b }}{% endfor %}",
    "{% set l = [] %}{% for i in range(2) %}{{ l }}{% set _ = l.append(i) %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ ns.x }}",
    "{% for i in range(30) %}{% for j in range(2) %}{% for k in range(2) %}{% set a = i %}{{ a }}{{ messages|length }}{% endfor %}{% endfor %}{% endfor %}",
    "{% for i in range(4) %}a{% if i == 1 %}lost{% if true %}too{% continue %}{% endif %}{% endif %}b{% if i == 2 %}lost{% break %}{% endif %}{% endfor %}c",
    "{% for i in range(2) %}{% for j in [] %}{% else %}lost{% break %}{% endfor %}{{ i }}{% endfor %}",
    "{% for i in range(3) %}{% if i == 1 %}{{ [i] }}{% for j in [7] %}{{ j }}{% endfor %}{% continue %}{% endif %}{{ [i] }}x{% endfor %}",
    "{% set l = [1] %}{% if true %}{{ l }}{% if true %}-{{ l }}-{% endif %}{% for i in l %}{{ i }}{% endfor %}{% set _ = l.append(2) %}{% endif %}{{ l }}",
    "{% set ns = namespace(kept=[]) %}{% for i in 'ab'|list + [1, 2] %}{% set _ = ns.kept.append(loop) %}{% endfor %}{% for k in ns.kept %}{{ k.index }}{{ k.last }}{% endfor %}",
    "{% set ns = namespace(l=none) %}{% for i in [1, 2, 3] %}{{ ns.l.index }}{% set ns.l = loop %}{% endfor %}{{ ns.l.index }}",
    "{% for i in [1, 2] %}{{ loop.x }}{% set loop.x = i %}{{ loop.x }}{{ loop.index }}{% set loop.index = 9 %}{{ loop.index }}{% endfor %}",
    "{% for i in [1, 2] %}{{ loop.nothing }}{{ loop['index'] }}{{ loop.first }}{% if loop %}l{% endif %}{{ loop == loop }}{% endfor %}",
    "{% macro m(x) %}{{ x.index }}{{ x.length }}{% endmacro %}{% for i in [1, 2] %}{{ m(loop) }}{% endfor %}",
    "{% macro m() %}{{ loop.revindex }}{% endmacro %}{% for i in [1, 2] %}{{ loop.index }}{{ m() }}{% endfor %}",
    "{% for i in [5, 6] if i > loop.index %}{{ i }}{% endfor %}",
    "{% for i in [1] %}{% for i in [2] %}{{ i }}{% set j = i %}{% endfor %}{{ i }}{{ j }}{% endfor %}",
    "{% for a, a in [(1, 2)] %}{{ a }}{% endfor %}{% macro m(a, a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    // sets
    "{% set ns = namespace(a=1) %}{% set ns.a = 2 %}{% set ns.b = 3 %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{{ ns|tojson }}",
    "{% set d = {'a' ~ 'b': 1, 2: 3, none: 4} %}{{ d.ab }}{{ d['ab'] }}{{ d['a' ~ 'b'] }}{% set d.ab = 5 %}{% set d.c = 6 %}{{ d.ab }}{{ d }}{{ d|length }}{{ 'ab' in d }}",
    "{% set d = {} %}{% for i in range(40) %}{% set _ = d.items() %}{% endfor %}{% set ns = namespace(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10, k=11, l=12, m=13, n=14, o=15, p=16, q=17) %}{% set ns.q = 'x' %}{% set ns.r = 'y' %}{{ ns.q }}{{ ns.r }}{{ ns.s }}{{ ns }}",
    "{% set x.y = 1 %}",
    "{% set messages[0] = 1 %}",
    "{% set a, b = [1, 2, 3] %}",
    "{% set ns = namespace() %}{% set ns.t %}a{{ messages|length }}{% endset %}{{ ns.t }}",
    // macros
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m(b=5, a=6) }}{{ m(1, 2, 3, 4) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}",
    "{% macro m(a=x) %}{{ a }}{% endmacro %}{% set x = 5 %}{{ m() }}{% for x in [7] %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ loop.index }}{{ i }}{% endmacro %}{% for i in [4, 5] %}{{ m() }}{% endfor %}",
    "{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}",
    "{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{{ n }}{% endmacro %}{{ down(12) }}",
    "{% macro a(n) %}{% for i in range(n) %}{{ b(i) }}{{ i }}{% endfor %}{% endmacro %}{% macro b(n) %}[{{ n }}{{ a(n) }}]{% endmacro %}{{ a(4) }}",
    "{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% set y = 3 %}{% call(z) m(1) %}{{ z }}{{ y }}{% endcall %}",
    "{% macro m() %}{% for i in range(2) %}{{ caller() }}{% endfor %}{% endmacro %}{% for j in [8, 9] %}{% call m() %}{{ j }}{{ loop.index }}{% endcall %}{% endfor %}",
    "{% macro m() %}a{% endmacro %}{% set f = m %}{{ f() }}{{ f }}{% set ns = namespace(f=m) %}{{ ns.f() }}",
    "{{ nothing() }}",
    "{{ 'text'() }}",
    "{% macro m(a) %}{% if a %}{% for x in a %}{{ x }}{% else %}no{% endfor %}{% else %}-{% endif %}{% endmacro %}{{ m([1, 2]) }}{{ m([]) }}{{ m() }}",
    // members, filters, operators
    "{{ messages[0].content }}{{ messages[0]['role'] }}{{ messages[-1]['content'] }}{{ messages[9] }}{{ messages[-9] }}{{ messages['x'] }}{{ messages[0]['x'] }}{{ messages[0].x }}",
    "{{ {'items': 1}.items }}{{ {'items': 1}['items'] }}{{ {'a': 1}['keys'] }}{{ {'a': 1}.get('b', 2) }}{{ {'a': none}['a'] }}{{ {'a': none}.a }}",
    "{{ missing.x }}{{ missing['x'] }}{{ missing.x.y }}",
    "{{ none.x }}{{ 5.x }}{{ 'abc'[1] }}{{ 'abc'[9] }}{{ 'abc'[true] }}{{ [1, 2][true] }}{{ 'abc'.upper }}{{ 'abc'[1:] }}{{ [1, 2, 3][::-1] }}",
    "{{ {1: 'a', true: 'b'}[1] }}{{ {'a': 1}[1] }}{{ {'a': 1}[none] }}",
    "{{ {'a': 1}[[1]] }}",
    "{{ ' a b '|trim }}{{ ' a '|strip }}{{ 'abc'|count }}{{ 'abc'|length }}{{ ''|d('x', true) }}{{ 'a<b'|e }}{{ 'a'|upper|lower|capitalize }}{{ 'a,b'|split(',') }}",
    "{{ 5|trim }}{{ none|upper }}{{ [1]|replace('1', '2') }}{{ missing|trim }}{{ missing|default('x') }}{{ 'xax'|trim('x') }}{{ 'aXa'|replace('X', 'y') }}",
    "{{ 'abc'|nothing }}",
    "{{ 'abc'|tojson }}{{ {'a': 'é', 'b': [1, 2.5, none, true]}|tojson }}{{ 'a'|string }}{{ 'a'|list }}{{ '5'|int }}{{ 'a'|default }}{{ 'a'|indent(2) }}{{ 'a'|safe }}",
    "{{ 1 == 1.0 }}{{ 1 == true }}{{ 'a' == 'a' }}{{ 'a' != 'b' }}{{ [1] == [1] }}{{ {'a': 1} == {'a': 1} }}{{ none == none }}{{ missing == none }}{{ missing != missing }}{{ (1, 2) == (1, 2) }}",
    "{{ 'a' in 'abc' }}{{ 'a' in ['a'] }}{{ 'a' not in {'a': 1} }}{{ 1 + 2 * 3 }}{{ 'a' ~ 1 }}{{ 'a' + 'b' }}{{ [1] + [2] }}{{ 7 % 4 }}{{ 'ab' * 2 }}{{ 1 < 2 and 2 > 1 }}",
    "{{ 5 in [5] }}{{ 5 in [5.0] }}{{ true in [1] }}{{ 'a' in ['b', 'a'] }}{{ 'a' in [] }}{{ none in [none] }}{{ 'x' not in 'abc' }}{{ '' in '' }}{{ 'a' in {'a': 1} }}{{ 1 in {1: 2} }}{{ missing in [1] }}{{ 'a' in missing }}{{ 'a' not in missing }}",
    "{{ 'a' in 5 }}",
    "{{ 5 in 'a5' }}",
    "{{ 'a' < 'b' }}",
    "{{ 3 - 5 }}{{ 3 < 3 }}{{ 3 <= 3 }}{{ 3 > 3.5 }}{{ 3 >= 2 }}{{ 9007199254740993 + 0 }}{{ 1 + 1.5 }}{{ true + 1 if false else 2 }}{{ 5 / 2 }}{{ 2 * 3 }}{{ -3 % 2 }}",
    "{{ 'a' ~ none }}{{ missing ~ 'a' }}{{ 'a' ~ 1 ~ 2.5 ~ true ~ [1] }}{{ '' + 'a' }}{{ ('a' ~ 'b') == 'ab' }}{{ 'ab' == ('a' ~ 'b') }}{{ ('a' ~ 'bc')|capitalize }}{{ (' ' ~ ' a ' ~ ' ')|trim }}|",
    "{{ 0 and x }}{{ 0 or 'y' }}{{ 'a' and 'b' }}{{ missing or [] }}{{ not 'a' }}{{ not missing }}{{ 1 and not 0 }}",
    "{% for v in [none, true, 1, 1.5, 'a', [1], (1, 2), {'a': 1}, messages, messages.append, missing] %}{{ v is none }}{{ v is defined }}{{ v is undefined }}{{ v is string }}{{ v is number }}{{ v is integer }}{{ v is float }}{{ v is boolean }}{{ v is mapping }}{{ v is sequence }}{{ v is iterable }}{{ v is callable }}{{ v is not none }}{{ v is eq(1) }}{{ v is in([1, 'a']) }}{{ v is true }};{% endfor %}",
    "{{ 1 is nothing }}",
    "{{ 'a' is odd }}",
    "{{ 'a' is sameas('a') }}{% set a = 'x' %}{{ a is sameas(a) }}{{ none is sameas(none) }}{{ 1 is sameas(1) }}{{ true is sameas(true) }}{{ [] is sameas([]) }}",
    "{{ messages|first }}{{ messages|last|tojson }}{{ messages|length }}{{ messages|count }}{{ {'b': 1, 'a': 2}|dictsort }}{{ {'a': 1}|items }}{{ missing|length }}{{ none|default('n') }}{{ none|string }}{{ true|string }}{{ 5|string }}{{ missing|list }}{{ missing|d(1) }}{{ [3, 1]|sort }}{{ (1, 2)|list }}{{ 5|upper }}{{ true|lower }}{{ [1, 'a']|join('-') }}",
    "{{ messages|nothing }}",
    "{{ missing|nothing }}",
    "{{ [1]|trim }}{{ {'a': 1}|replace('a', 'b') }}{{ none|trim }}{{ 5|capitalize }}{{ 2.5|title }}",
    "{{ 'a,b'.split(',')[1] }}{{ 'abc'.upper() }}{{ ' a '.strip() }}{{ 'abc'.startswith('a') }}{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'get': 1}.get('get') }}{{ {'get': 1}['get'] }}{{ {'a': 1}.items()|list }}{{ {'a': 1}.keys() }}{{ [1, 2].pop() }}",
    "{{ {'f': 1}.f() }}",
    "{{ missing.f() }}",
    "{{ none.get('a') }}",
    "{% set d = namespace(items=5) %}{{ d.items }}{{ d['items'] }}{{ d.items() }}",
    "{% for i in [1] %}{{ loop.get('index') }}{% endfor %}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(b=1, a=missing) }}{{ m(missing, b=2) }}{{ m(3, a=4) }}{% set x = m(1, 2) %}{{ x|length }}{{ m(1, 2) == '12' }}",
    "{% macro m(a, b=a) %}{{ b }}{% set a = 5 %}{{ a }}{% endmacro %}{% set a = 'outer' %}{{ m(1) }}{{ a }}",
    "{% macro range(n) %}own{{ n }}{% endmacro %}{{ range(3) }}{% set namespace = 5 %}{{ namespace }}{% set dict = missing %}{{ dict(a=1).a }}",
    "{% if messages.append %}f{% endif %}{% if messages[0].get %}g{% endif %}",
    "{% filter trim %} {{ messages[0].role }}{% if true %} x{% endif %} {% endfilter %}|{% filter length %}{{ [1] }}{% endfilter %}",
    "{{ missing + 1 }}",
    "{{ none + 1 }}",
    "{% if messages %}a{% elif x %}b{% else %}c{% endif %}{% if missing %}a{% elif messages|length > 99 %}b{% else %}c{{ [1, 'x', {'y': 2}] }}{% endif %}",
    "{% set a, b = (1, 2) %}{{ a }}{{ b }}{% set c %}x{{ a }}{% endset %}{{ c }}{{ c|length }}{% set true = 0 %}{{ true }}",
    "{% filter upper %}a{{ messages[0].role }}{% endfilter %}{% generation %}x{% endgeneration %}{{ 1 if missing else 2 }}{{ not missing }}{{ -5 }}",
    "{% for m in messages %}{{ raise_exception('no ' ~ m.role) }}{% endfor %}",
    "{% break %}",
};

}  // namespace

int templates_are_llama_cpps(const char * folder, bool thoroughly) {
    const auto ways = thoroughly ? options() : std::vector<common_json>{options()[1]};
    const auto few = std::vector<common_json>{histories()[2], histories()[4]};
    const auto all = thoroughly ? histories() : std::vector<common_json>{histories()[2], histories()[4], long_history(false)};
    int compared = 0;
    for (const auto & saying : sayings) {
        compared += compare(saying, saying, few, {options()[0]});
    }
    for (const auto & entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".jinja") {
            compared += compare(entry.path().filename().string(), content_of(entry.path()), all, ways);
        }
    }
    return compared;
}
