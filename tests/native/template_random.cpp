// See template_sayings.h. Expressions are made by their type, so that few are refused; nothing is put into itself.

#include <random>
#include <string>
#include <vector>

#include "template_sayings.h"

namespace {

class Author {
  public:
    explicit Author(unsigned seed) : random_(seed) {}

    std::string write() {
        std::string macros;
        for (const char * head : {"f(a, b=2)", "g(a='x', b=n)"}) {
            macros += std::string("{% macro ") + head + " %}{{ a }}{{ b }}" + body(2, false) + "{% endmacro %}";
            macros_.push_back(head[0] == 'f' ? "f" : "g");  // that were there before: they do not call themselves
        }
        return "{% set ns = namespace(v='n', c=0) %}{% set l = [1, 'b'] %}{% set x = 'outer' %}{% set n = 3 %}"
               "{% set d = {'b': 1, 'items': 'i', 'z': none, 'a': 'Qa'} %}" +
               macros + "{% set ready = true %}" + body(3, false) + body(3, false) + "{% if add_generation_prompt %}<|im_start|>{% endif %}";
    }

  private:
    std::mt19937 random_;
    std::vector<const char *> macros_;
    bool names_loop_ = below(2) == 0;  // and not just its members
    int loops_ = 0;                    // around what is written

    size_t below(size_t n) { return random_() % n; }
    std::string one_of(const std::vector<const char *> & texts) { return texts[below(texts.size())]; }

    std::string text(int depth) {
        if (depth == 0 || below(3) == 0) {
            return one_of({"'a'", "''", "' b '", "'a,b'", "x", "ns.v", "ns['v']", "messages[0].role", "messages[-1]['content']",
                           "d.a", "d['items']", "d.get('a')", "'Ab cD'"});
        }
        switch (below(8)) {
            case 0: return "(" + text(depth - 1) + one_of({" ~ ", " + "}) + text(depth - 1) + ")";
            case 1: return "(" + text(depth - 1) + " ~ " + number(depth - 1) + ")";
            case 2: return "(" + text(depth - 1) + one_of({"|trim", "|upper", "|capitalize", "|string", "|replace('a', 'bb')", "|title",
                                                     "|default('q')", "|tojson", "|indent(1)", "|lower", "|safe"}) + ")";
            case 3: return text(depth - 1) + one_of({".strip()", ".upper()", ".split('a')[0]", ".split(',')[-1]", "[1:]", "[0]", ".rstrip('b ')"});
            case 4: return "(" + text(depth - 1) + " if " + truth(depth - 1) + " else " + text(depth - 1) + ")";
            case 5: return "(" + list(depth - 1) + one_of({"|join('-')", "|tojson", "|string", "|first|string"}) + ")";
            case 6: return "((" + any(depth - 1) + one_of({" or ", " and "}) + text(depth - 1) + ")|string)";
            default: return macros_.empty() ? "x" : one_of(macros_) + "(" + any(depth - 1) + one_of({")", ", b=1)", ", 'q')", ", b='q', a=2)"});
        }
    }

    std::string number(int depth) {
        if (depth == 0 || below(3) == 0) {
            return one_of({"0", "1", "7", "(0 - 2)", "2.5", "n", "ns.c", "(loop.index|default(5))", "d.b", "(messages|length)", "(x|length)"});
        }
        switch (below(4)) {
            case 0: return "(" + number(depth - 1) + one_of({" + ", " - ", " * "}) + number(depth - 1) + ")";
            case 1: return "(" + list(depth - 1) + "|length)";
            case 2: return "(" + text(depth - 1) + "|length)";
            default: return "(" + number(depth - 1) + " if " + truth(depth - 1) + " else " + number(depth - 1) + ")";
        }
    }

    std::string truth(int depth) {
        if (depth == 0 || below(3) == 0) {
            return loops_ > 0 && below(3) == 0 ? one_of({"loop.first", "loop.last", "loop.nextitem"})
                                               : one_of({"true", "false", "ready", "missing", "x", "l", "none", "messages"});
        }
        switch (below(7)) {
            case 0: return "(" + any(depth - 1) + one_of({" == ", " != "}) + any(depth - 1) + ")";
            case 1: return "(" + number(depth - 1) + one_of({" < ", " > ", " <= ", " >= "}) + number(depth - 1) + ")";
            case 2: return "(" + text(depth - 1) + one_of({" in ", " not in "}) + one_of({"l", "d", "'abc'", "['a', '']", "missing"}) + ")";
            case 3: return "(not " + truth(depth - 1) + ")";
            case 4: return "(" + truth(depth - 1) + one_of({" and ", " or "}) + truth(depth - 1) + ")";
            case 5: return "(" + any(depth - 1) + one_of({" is ", " is not "}) +
                           one_of({"string", "mapping", "none", "defined", "undefined", "boolean", "number", "iterable", "sequence", "true", "eq('a')"}) + ")";
            default: return "(" + text(depth - 1) + one_of({".startswith('a')", ".endswith(' ')"}) + ")";
        }
    }

    std::string list(int depth) {
        if (depth == 0 || below(3) == 0) {
            return one_of({"l[:3]", "[]", "[1, 'a']", "range(3)", "(2, 'b')", "messages[1:]", "d.keys()", "(missing|list)"});
        }
        switch (below(4)) {
            case 0: return "[" + any(depth - 1) + ", " + any(depth - 1) + "]";
            case 1: return "(" + list(depth - 1) + " + " + list(depth - 1) + ")[:3]";
            case 2: return text(depth - 1) + ".split('a')[:3]";
            default: return "(" + list(depth - 1) + one_of({"|list", "|reverse", "[::-1]", "[1:]"}) + ")";
        }
    }

    std::string any(int depth) {
        switch (below(12)) {
            case 0: return "none";
            case 1: return "missing";
            case 2: return one_of({"d", "messages[0]", "{'k': 1, 'j': [2]}", "l", names_loop_ ? "loop" : "d"});
            case 3: case 4: return number(depth);
            case 5: case 6: return truth(depth);
            case 7: case 8: return list(depth);
            default: return text(depth);
        }
    }

    std::string body(int depth, bool in_loop) {
        std::string all;
        for (size_t i = 0, n = 1 + below(4); i < n; ++i) {
            all += statement(depth, in_loop);
        }
        return all;
    }

    std::string loop(int depth) {
        const std::string condition = below(4) == 0 ? " if " + truth(1) : "";
        const std::string otherwise = below(4) == 0 ? "{% else %}" + body(depth - 1, false) : "";
        const std::string head = below(4) == 0 ? "k, v in " + one_of({"d.items()", "d|dictsort", "[(1, 2), ('a', l)]", "d"})
                                               : one_of({"i", "x", "m", "j"}) + " in " + list(2);
        ++loops_;
        const std::string inside = body(depth - 1, true);
        --loops_;
        return "{% for " + head + condition + " %}" + inside + otherwise + "{% endfor %}";
    }

    std::string statement(int depth, bool in_loop) {
        if (depth == 0 || below(3) == 0) {
            return below(2) == 0 ? one_of({"text", " ", "\n", "<|im_start|>", "{# no #}"}) : "{{ " + any(2) + " }}";
        }
        switch (below(11)) {
            case 0: case 1: case 2: return loop(depth);
            case 3: case 4: {
                const std::string otherwise = below(2) == 0 ? "{% elif " + truth(2) + " %}" + body(depth - 1, in_loop) : "";
                return "{% if " + truth(2) + " %}" + body(depth - 1, in_loop) + otherwise + "{% else %}" + body(depth - 1, in_loop) + "{% endif %}";
            }
            case 5: return "{% set " + one_of({"x", "n2", "y"}) + " = " + text(2) + " %}{{ x }}{{ y }}";
            case 6: return "{% set ns." + one_of({"v", "w"}) + " = " + text(2) + " %}{{ ns.v }}{{ ns.w }}";
            case 7: return "{% set ns.c = ns.c + 1 %}{% set _ = l.append(" + one_of({"n", "'p'", "ns.c"}) + ") %}{{ l[:5] }}";
            case 8: return "{% set x %}" + body(depth - 1, false) + "{% endset %}{{ x|length }}";
            case 9: return in_loop ? std::string("{% if ") + truth(1) + " %}" + body(depth - 1, true) + one_of({"{% break %}", "{% continue %}"}) + "{% endif %}"
                                   : "{% filter " + one_of({"upper", "trim", "length"}) + " %}" + body(depth - 1, false) + "{% endfilter %}";
            default: return (names_loop_ ? "{% set loop_was = loop %}{{ loop_was.index }}{{ " : "{{ loop.index0 }}{{ ") + any(2) + " }}";
        }
    }
};

}  // namespace

std::string random_template(unsigned seed) { return Author(seed).write(); }
