"""How surprised a model is by a text: logits of every position, in numpy."""

import numpy as np

from causerie import llama, models

TEXT = "The sea is salty because rivers carry minerals from the rocks into it, and water leaves it only as vapour."


def main() -> None:
    with llama.Model(models.resolve("smollm2")) as model, llama.Context(model, n_ctx=256) as context:
        ids = model.vocab.tokenize(TEXT)
        batch = llama.Batch(len(ids))
        for position, token in enumerate(ids):
            batch.add(int(token), position, output=True)
        context.decode(batch)

        surprise = []
        for position in range(len(ids) - 1):
            row = context.logits(position).astype(np.float64)
            row -= row.max()
            surprise.append(np.log(np.exp(row).sum()) - row[ids[position + 1]])
        print(f"{len(ids)} tokens, perplexity {np.exp(np.mean(surprise)):.2f}")


if __name__ == "__main__":
    main()
