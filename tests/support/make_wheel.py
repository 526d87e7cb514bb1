"""A package of one module: make_wheel.py DIRECTORY NAME VERSION SOURCE writes its wheel there."""
import pathlib
import sys
import zipfile

folder, name, version, source = sys.argv[1:]
about = f"{name}-{version}.dist-info"
files = {
    f"{name}.py": source + "\n",
    f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
record = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
with zipfile.ZipFile(pathlib.Path(folder) / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
    for path, text in {**files, f"{about}/RECORD": record}.items():
        wheel.writestr(path, text)
