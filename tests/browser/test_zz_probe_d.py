import pytest
from django.utils import timezone
from tests.factories import *
from annotation.models import *
from evaluation.services.reports import create_report
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

def test_probe(visit):
    r = make_researcher("ada")
    round = make_round([("dog","swim"),("cat","climb a tree"),("fish","sing"),("stone","talk"),("bird","fly"),("cow","drive"),("horse","run")], name="pilot", study="Animals", by=r, batch_size=3)
    make_round(3, name="made-up", study="Animals", by=r, source="simulated")
    user = make_user("ann")
    v = visit(user); p = v.page
    p.goto(f"/join/{round.join_token}/")
    p.screenshot(path="/tmp/D/join.png")
    p.get_by_role("button", name="Start judging").click()
    p.wait_for_selector(".judge")
    p.screenshot(path="/tmp/D/judge.png")
    seen=[]
    def press(keys):
        for key in keys:
            p.wait_for_function("() => !document.querySelector('#statement').innerText.includes('moment')")
            seen.append(p.inner_text("#statement")); p.keyboard.press(key)
    press("tfu1")
    p.screenshot(path="/tmp/D/judge2.png")
    p.wait_for_function("() => !document.querySelector('#statement').innerText.includes('moment')")
    p.keyboard.press("Backspace")
    p.screenshot(path="/tmp/D/judge3.png")
    assert p.inner_text("#statement")==seen[-1]
    p.keyboard.press("2")
    p.keyboard.press("?"); p.screenshot(path="/tmp/D/judge4.png"); p.keyboard.press("Escape")
    press("ttt")
    p.wait_for_selector("text=You judged 7 statements")
    p.screenshot(path="/tmp/D/done.png")
    print(seen, v.complaints)
    assert len(set(seen))==7
    assert Judgment.objects.current().count()==7 and Judgment.objects.count()==8
    print([ (j.label,j.seconds) for j in Judgment.objects.all()])
    for a in make_annotators(round,2):
        while b:=next_batch(a, timezone.now()):
            for t in b: judge(a,t,"true" if t.pk%3 else "false")
    rep=create_report(round, by=r)
    v2=visit(r); p=v2.page
    for name,path in {"rounds":"/rounds/","round":"/rounds/pilot/","roundnew":"/rounds/new/","close":"/rounds/pilot/close/","reports":"/reports/","report":f"/reports/{rep.pk}/","sim":"/rounds/made-up/"}.items():
        p.goto(path); p.screenshot(path=f"/tmp/D/{name}.png", full_page=True)
    print(v2.complaints)
