"""A perceptron with one hidden layer, forwards and backwards, in plain Python.

All parameters are one flat array of floats: weights of the hidden layer row by row, its biases, weights
of the output layer row by row, its biases. That is what travels, and what parameter servers cut up.
"""
import array
import math
import random
from operator import mul


class Model:
    def __init__(self, inputs, hidden, outputs):
        self.inputs, self.hidden, self.outputs = inputs, hidden, outputs
        self.hidden_bias = inputs * hidden
        self.output_weight = self.hidden_bias + hidden
        self.output_bias = self.output_weight + hidden * outputs
        self.size = self.output_bias + outputs

    def initial(self, seed):
        rng = random.Random(seed)
        values = array.array("d", bytes(8 * self.size))
        for index in range(self.hidden_bias):
            values[index] = rng.gauss(0, 1 / math.sqrt(self.inputs))
        for index in range(self.output_weight, self.output_bias):
            values[index] = rng.gauss(0, 1 / math.sqrt(self.hidden))
        return values

    def rows(self, values):
        """The flat array as (hidden rows, hidden biases, output rows, output biases)."""
        hidden = [values[start:start + self.inputs]
                  for start in range(0, self.hidden_bias, self.inputs)]
        output = [values[start:start + self.hidden]
                  for start in range(self.output_weight, self.output_bias, self.hidden)]
        return (hidden, values[self.hidden_bias:self.output_weight],
                output, values[self.output_bias:])

    def forward(self, rows, pixels):
        """(what the hidden layer says, probability of each class)"""
        hidden_rows, hidden_bias, output_rows, output_bias = rows
        hidden = [math.tanh(bias + sum(map(mul, row, pixels)))
                  for row, bias in zip(hidden_rows, hidden_bias)]
        scores = [bias + sum(map(mul, row, hidden)) for row, bias in zip(output_rows, output_bias)]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = sum(powers)
        return hidden, [power / total for power in powers]

    def gradient(self, values, batch):
        """(mean gradient over the batch, mean loss)"""
        rows = self.rows(values)
        output_rows = rows[2]
        hidden_errors, output_errors, hidden_outputs, loss = [], [], [], 0.0
        for pixels, label in batch:
            hidden, probabilities = self.forward(rows, pixels)
            loss -= math.log(max(probabilities[label], 1e-12))
            probabilities[label] -= 1
            back = [sum(map(mul, column, probabilities)) for column in zip(*output_rows)]
            hidden_errors.append([error * (1 - h * h) for error, h in zip(back, hidden)])
            output_errors.append(probabilities)
            hidden_outputs.append(hidden)

        # Each row of the gradient is a sum over the batch, so put the batch innermost.
        share = 1 / len(batch)
        pixel_columns = list(zip(*(pixels for pixels, _ in batch)))
        hidden_columns = list(zip(*hidden_outputs))
        gradient = array.array("d")
        error_columns = [[error * share for error in column] for column in zip(*hidden_errors)]
        for errors in error_columns:
            gradient.extend([sum(map(mul, errors, column)) for column in pixel_columns])
        gradient.extend([sum(errors) for errors in error_columns])
        error_columns = [[error * share for error in column] for column in zip(*output_errors)]
        for errors in error_columns:
            gradient.extend([sum(map(mul, errors, column)) for column in hidden_columns])
        gradient.extend([sum(errors) for errors in error_columns])
        return gradient, loss * share

    def evaluate(self, values, samples):
        """(mean loss, share of the samples that are recognised)"""
        rows = self.rows(values)
        loss, right = 0.0, 0
        for pixels, label in samples:
            _, probabilities = self.forward(rows, pixels)
            loss -= math.log(max(probabilities[label], 1e-12))
            right += probabilities.index(max(probabilities)) == label
        return loss / len(samples), right / len(samples)
