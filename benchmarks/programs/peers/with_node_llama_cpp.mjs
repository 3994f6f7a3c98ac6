// A task done with node-llama-cpp: one context with as many sequences as the task has parallel conversations.
// Run in the folder in which node-llama-cpp is installed; times are seconds, as in task.py.

import {mkdtempSync, readFileSync, rmSync, statSync, writeFileSync} from "node:fs";
import {tmpdir} from "node:os";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
import {join} from "node:path";

const task = JSON.parse(readFileSync(0, "utf8"));
const now = () => performance.now() / 1000;
const figures = {};

function finish(printed) {
    process.stdout.write(JSON.stringify(printed) + "\n", () => process.exit(0));
}

const unsupported = task.binding ? "its primitives are not those of the other systems"
    : null;
if (unsupported) {
    finish({unsupported});
} else {
    const importing = now();
    const library = createRequire(join(process.cwd(), "package.json")).resolve("node-llama-cpp");
    const {getLlama, LlamaChatSession} = await import(pathToFileURL(library).href);
    figures.import = now() - importing;

    const loading = now();
    const llama = await getLlama({gpu: false, build: "never", skipDownload: true, progressLogs: false, logLevel: "error",
        maxThreads: task.threads});
    const model = await llama.loadModel({modelPath: task.model});
    const parallel = Math.max(1, task.parallel);
    const sequences = parallel + (task.branches.length ? 1 : 0);  // what is branched keeps its own
    const opened = () => model.createContext({sequences, contextSize: Math.floor(task.n_ctx / parallel),
        threads: task.threads});
    let context = await opened();
    figures.load = now() - loading;

    const grammar = task.schema ? await llama.createGrammarForJsonSchema(task.schema) : undefined;
    const {temperature, top_k: topK, top_p: topP, min_p: minP, seed} = task.sampling;
    const sampling = {temperature, topK, topP, minP, seed, repeatPenalty: false};

    const say = async (session, text, maxTokens, piece, constrained) => {
        let tokens = 0;
        const found = await session.promptWithMeta(text, {...sampling, maxTokens, trimWhitespaceSuffix: false,
            grammar: constrained ? grammar : undefined,
            onToken: (ids) => { tokens += ids.length; piece(); }});
        return [tokens, found.stopReason === "maxTokens" ? "length" : "stop"];
    };

    const warm = context.getSequence();
    await say(new LlamaChatSession({contextSequence: warm}), "Hello", 8, () => {}, false);
    await warm.dispose();

    const specs = task.conversations;
    if (specs.length > parallel) {
        finish({unsupported: "it has no more conversations than sequences"});
    } else {
        // Its default system prompt would be one that the others do not have.
        const sessions = specs.map((spec) => new LlamaChatSession({contextSequence: context.getSequence(),
            systemPrompt: spec.system}));
        let replies = [];
        let zero = now();
        const ask = async (session, text, maxTokens, i, k, signal) => {
            const times = [];
            const asked = now() - zero;
            const piece = () => {
                times.push(now() - zero);
                if (signal && times.length === signal.pieces) signal.begin();
            };
            const [tokens, finished] = await say(session, text, maxTokens, piece, k > 0 && task.schema);
            replies.push({conversation: i, turn: k, asked, times, tokens, finish: finished});
        };
        const turn = (i, k, signal) =>
            ask(sessions[i], specs[i].turns[k], specs[i].max_tokens ?? task.max_tokens, i, k, signal);
        // Sequences share nothing: another session with the same history evaluates it again.
        const withHistory = (history) => {
            const session = new LlamaChatSession({contextSequence: context.getSequence()});
            session.setChatHistory(history);
            return session;
        };
        if (task.order === "in turn") {
            for (let k = 0; k < Math.max(...specs.map((spec) => spec.turns.length)); k++)
                for (let i = 0; i < specs.length; i++)
                    if (k < specs[i].turns.length) await turn(i, k);
        } else {
            const pieces = Math.max(...specs.map((spec) => spec.after_tokens ?? 0));
            let begin = () => {};
            const late = new Promise((resolve) => { begin = resolve; });
            await Promise.all(specs.map(async (spec, i) => {
                if (spec.after_tokens) await late;
                for (let k = 0; k < spec.turns.length; k++) await turn(i, k, i === 0 && pieces ? {pieces, begin} : undefined);
            }));
        }
        if (task.branches.length) {
            replies = [];
            zero = now();
            const history = sessions[0].getChatHistory();
            await Promise.all(task.branches.map((text, i) => ask(withHistory(history), text, task.max_tokens, i, 0)));
        }
        figures.replies = replies.sort((a, b) => a.conversation - b.conversation || a.turn - b.turn);
        figures.resident = process.memoryUsage().rss;
        if (task.resume) {
            const folder = mkdtempSync(join(tmpdir(), "causerie-bench-"));
            const [stateFile, historyFile] = ["state.bin", "history.json"].map((name) => join(folder, name));
            try {
                let begun = now();
                await sessions[0].sequence.saveStateToFile(stateFile);
                writeFileSync(historyFile, JSON.stringify(sessions[0].getChatHistory()));
                figures.save = now() - begun;
                figures.saved_bytes = statSync(stateFile).size + statSync(historyFile).size;
                await context.dispose();
                context = await opened();
                begun = now();
                const sequence = context.getSequence();
                await sequence.loadStateFromFile(stateFile, {acceptRisk: true});
                const session = new LlamaChatSession({contextSequence: sequence});
                session.setChatHistory(JSON.parse(readFileSync(historyFile, "utf8")));
                figures.restore = now() - begun;
                replies = [];
                zero = begun;
                await ask(session, task.resume, 1, 0, 0);
                figures.resumed_first_token = replies[0].times[0];
            } finally {
                rmSync(folder, {recursive: true});
            }
        }
        const folder = library.slice(0, library.lastIndexOf("/dist/"));
        figures.about = {version: JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version,
            llama_version: llama.llamaCppRelease.release};
        finish(figures);
    }
}
