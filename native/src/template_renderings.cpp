// See template_renderings.h.

#include "template_renderings.h"

#include <memory>
#include <utility>

#include "template_bodies.h"
#include "template_scope.h"

namespace {

using namespace jinja;

causerie::Renderings *& current_renderings() {
    static thread_local causerie::Renderings * current = nullptr;
    return current;
}

bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

struct whole : statement {
    statements body;
    causerie::guarded::Body nodes;
    explicit whole(statements && all) : body(std::move(all)), nodes(body) { pos = 0; }
    std::string type() const override { return "Template"; }
    value execute_impl(context & ctx) const override {
        auto * renderings = ctx.is_get_stats ? nullptr : causerie::Renderings::current();
        const bool begins_reply = renderings != nullptr && begins(ctx);  // which the template may change
        const value printed = nodes.printed(ctx);
        std::string text;
        for (const auto & part : printed->val_str.parts) {
            text += part.val;
        }
        if (renderings != nullptr) {
            renderings->tell(begins_reply, text);
        }
        return mk_val<value_string>(text);
    }

  private:
    static bool begins(context & ctx) {
        static const value name = mk_val<value_string>(std::string("add_generation_prompt"));
        const value * found = causerie::find_variable(ctx, name);
        return found != nullptr && (*found)->as_bool();
    }
};

}  // namespace

namespace causerie {

Renderings::Renderings(std::string known) : before_(current_renderings()), known_(std::move(known)) {
    current_renderings() = this;
}

Renderings::~Renderings() { current_renderings() = before_; }

Renderings * Renderings::current() { return current_renderings(); }

void Renderings::tell(bool begins_reply, const std::string & text) {
    ++made_;
    if (made_ == 1) {
        first_ = text;
        usual_ = begins_reply;
        if (begins_reply && !known_.empty() && ends_with(text, known_)) {
            throw Rendered{text};
        }
    } else if (made_ == 2) {
        usual_ = usual_ && !begins_reply && first_.compare(0, text.size(), text) == 0;
        found_ = usual_ ? first_.substr(text.size()) : "";
    } else {
        usual_ = usual_ && made_ == 3 && begins_reply && text == first_;
    }
}

const std::string & Renderings::found() const {
    static const std::string nothing;
    return usual_ && made_ == 3 ? found_ : nothing;
}

void render_once(jinja::program & program) {
    statements body = std::move(program.body);
    program.body.clear();
    program.body.push_back(std::make_unique<whole>(std::move(body)));
}

}  // namespace causerie
