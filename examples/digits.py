"""What the workers of `07_sweep.py` run: in a module of its own, so that they import it and trust no pickle."""

import time

import dreamlake.lakeshore as dls


@dls.udf(queue="sweep")
def evaluate(c: float, gamma: float) -> dict:
    """Accuracy of an RBF support vector classifier: it learns one half of scikit-learn's digits and reads the other."""
    from sklearn.datasets import load_digits  # here, and not above: whoever only submits does not need it
    from sklearn.model_selection import train_test_split
    from sklearn.svm import SVC

    began = time.perf_counter()
    images, labels = load_digits(return_X_y=True)
    learnt, read, learnt_labels, read_labels = train_test_split(images, labels, test_size=0.5, random_state=0)
    classifier = SVC(C=c, gamma=gamma).fit(learnt, learnt_labels)
    return {"accuracy": float(classifier.score(read, read_labels)), "seconds": time.perf_counter() - began}
